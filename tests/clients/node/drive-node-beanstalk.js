"use strict";
// Drives a server with node-beanstalk. Usage: node drive-node-beanstalk.js HOST PORT

const assert = require("node:assert");
const { Client } = require("node-beanstalk");

const [host, port] = [process.argv[2], Number(process.argv[3])];
const every = Buffer.from(Array.from({ length: 256 }, (_, byte) => byte));
const bodies = [
  Buffer.alloc(0),
  Buffer.from("x"),
  Buffer.from("\r\n"),
  every,
  Buffer.alloc(8192, 1),
  Buffer.alloc(16384, "\r\n"),
  Buffer.alloc(65535, every),
];
const asIs = { serialize: (data) => data, deserialize: (data) => data };

async function connect() {
  const client = new Client({ host, port, serializer: asIs, maxPayloadSize: 65535 });
  await client.connect();
  return client;
}

async function seconds(promise) {
  const start = process.hrtime.bigint();
  await promise;
  return Number(process.hrtime.bigint() - start) / 1e9;
}

async function takesJobsThroughTheirLives() {
  const client = await connect();
  assert.strictEqual(await client.use("nb"), "nb");
  assert.strictEqual(await client.watch("nb"), 2);
  assert.strictEqual(await client.ignore("default"), true);
  assert.strictEqual(await client.ignore("nb"), false);
  for (const body of bodies) {
    const { id, state } = await client.put(body, 90, 5, 0);
    assert.strictEqual(state, "ready");
    const job = await client.reserve();
    assert.strictEqual(job.id, id);
    assert.ok(body.equals(job.payload), `body of ${body.length} bytes`);
    assert.strictEqual(await client.touch(id), true);
    assert.strictEqual(await client.release(id, 4, 600), "delayed");
    assert.strictEqual((await client.peekDelayed()).id, id);
    assert.strictEqual(await client.kick(1), 1);
    assert.strictEqual((await client.reserveWithTimeout(0)).id, id);
    assert.strictEqual(await client.bury(id, 3), true);
    assert.strictEqual((await client.peekBuried()).id, id);
    assert.strictEqual(await client.kickJob(id), true);
    assert.strictEqual((await client.peekReady()).id, id);
    assert.strictEqual((await client.reserveJob(id)).id, id);
    const stats = await client.statsJob(id);
    assert.deepStrictEqual([stats.state, stats.pri, stats.kicks], ["reserved", 3, 2]);
    assert.strictEqual(await client.delete(id), true);
    assert.strictEqual(await client.delete(id), false);
    assert.strictEqual(await client.peek(id), null);
  }
  assert.strictEqual((await client.statsTube("nb"))["cmd-delete"], bodies.length);
  assert.strictEqual((await client.stats())["max-job-size"], 65535);
  assert.ok((await client.listTubes()).includes("nb"));
  assert.deepStrictEqual(await client.listTubesWatched(), ["nb"]);
  assert.strictEqual(await client.listTubeUsed(), "nb");
  assert.strictEqual(await client.pauseTube("nb-never", 1), false);
  await client.disconnect();
}

async function hearsOfTimeoutsAndDeadlines() {
  const client = await connect();
  await client.use("nb-time");
  await client.watch("nb-time");
  let got;
  const wait = async (timeout) => (got = await client.reserveWithTimeout(timeout));
  assert.ok((await seconds(wait(1))) > 0.95);
  assert.strictEqual(got, null);
  const { id } = await client.put(Buffer.from("x"), 2);
  assert.strictEqual((await client.reserve()).id, id);
  assert.ok((await seconds(assert.rejects(wait(30), { code: "DEADLINE_SOON" }))) > 0.95);
  assert.strictEqual(await client.touch(id), true);
  assert.strictEqual(await client.release(id, 0, 1), "delayed");
  assert.ok((await seconds(wait(20))) > 0.95);
  assert.strictEqual(got.id, id);
  await client.delete(id);
  await client.disconnect();
}

async function watchesSeveralTubes() {
  const [producer, worker] = [await connect(), await connect()];
  const tubes = ["nb-a", "nb-b", "nb-c", "nb-d"];
  for (const tube of tubes) await worker.watch(tube);
  const waiting = worker.reserve();
  await producer.use("nb-c");
  const first = await producer.put(Buffer.from("c"), 60, 0, 0);
  assert.strictEqual((await waiting).id, first.id);
  const ids = [];
  for (const tube of tubes) {
    await producer.use(tube);
    ids.push((await producer.put(Buffer.from(tube), 60, 10, 0)).id);
  }
  for (const id of ids) assert.strictEqual((await worker.reserveWithTimeout(0)).id, id);
  for (const id of [first.id, ...ids]) assert.strictEqual(await worker.delete(id), true);
  await worker.disconnect();
  await producer.disconnect();
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
