"use strict";
// Drives a server with jackd. Usage: node drive-jackd.js HOST PORT

const assert = require("node:assert");
const JackdClient = require("jackd");

const [host, port] = [process.argv[2], Number(process.argv[3])];
// Text, and not empty: this client sends a Buffer as JSON and refuses "". Other bodies are the other driver's part.
const bodies = ["x", "\r\n", "\u0000\u007f\u00e9\u2603", "a".repeat(8192), "\r\n".repeat(8192), "z".repeat(65535)];

async function connect() {
  const client = new JackdClient();
  await client.connect({ host, port });
  return client;
}

async function seconds(promise) {
  const start = process.hrtime.bigint();
  await promise;
  return Number(process.hrtime.bigint() - start) / 1e9;
}

async function takesJobsThroughTheirLives() {
  const client = await connect();
  assert.strictEqual(await client.use("jackd"), "jackd");
  assert.strictEqual(await client.watch("jackd"), 2);
  assert.strictEqual(await client.ignore("default"), 1);
  await assert.rejects(client.ignore("jackd"), /NOT_IGNORED/);
  for (const body of bodies) {
    const id = await client.put(body, { priority: 5, delay: 0, ttr: 90 });
    const job = await client.reserve();
    assert.strictEqual(job.id, id);
    assert.ok(job.payload.toString() === body, `body of ${body.length} characters`);
    await client.touch(id);
    await client.release(id, { priority: 4, delay: 600 });
    assert.strictEqual((await client.peekDelayed()).id, id);
    assert.strictEqual(await client.kick(1), 1);
    await client.reserveWithTimeout(0);
    await client.bury(id, 3);
    assert.strictEqual((await client.peekBuried()).id, id);
    await client.kickJob(id);
    assert.ok((await client.peek(id)).payload.toString() === body);
    assert.strictEqual((await client.reserveJob(id)).id, id);
    assert.match(await client.statsJob(id), /state: reserved/);
    await client.delete(id);
    await assert.rejects(client.peek(id), /NOT_FOUND/);
  }
  assert.match(await client.statsTube("jackd"), new RegExp(`cmd-delete: ${bodies.length}`));
  assert.match(await client.stats(), /max-job-size: 65535/);
  assert.match(await client.listTubes(), /- jackd\n/);
  await client.quit();
}

async function hearsOfTimeoutsAndDeadlines() {
  const client = await connect();
  await client.use("jackd-time");
  await client.watch("jackd-time");
  assert.ok((await seconds(assert.rejects(client.reserveWithTimeout(1), /TIMED_OUT/))) > 0.95);
  const id = await client.put("x", { ttr: 2 });
  await client.reserve();
  assert.ok((await seconds(assert.rejects(client.reserve(), /DEADLINE_SOON/))) > 0.95);
  await client.release(id, { priority: 0, delay: 1 });
  assert.ok((await seconds(client.reserve())) > 0.95);
  await client.delete(id);
  await client.quit();
}

async function watchesSeveralTubes() {
  const [producer, worker] = [await connect(), await connect()];
  const tubes = ["jackd-a", "jackd-b", "jackd-c", "jackd-d"];
  for (const tube of tubes) await worker.watch(tube);
  const waiting = worker.reserve();
  await producer.use("jackd-c");
  const first = await producer.put("c");
  assert.strictEqual((await waiting).id, first);
  const ids = [];
  for (const tube of tubes) {
    await producer.use(tube);
    ids.push(await producer.put(tube, { priority: 10 }));
  }
  for (const id of ids) assert.strictEqual((await worker.reserveWithTimeout(0)).id, id);
  for (const id of [first, ...ids]) await worker.delete(id);
  await worker.quit();
  await producer.quit();
}

async function main() {
  await takesJobsThroughTheirLives();
  await Promise.all([hearsOfTimeoutsAndDeadlines(), watchesSeveralTubes()]);
  console.log("all as expected");
}

main().catch((error) => {
  console.error(error);
  process.exit(1);
});
