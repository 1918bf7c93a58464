"""beanstalkd's client protocol: bytes to operations, results to reply bytes."""
