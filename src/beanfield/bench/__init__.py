"""`beanfield bench`: a load generator for servers of the beanstalkd protocol."""
