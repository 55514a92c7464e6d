// The real agent behind a line that breaks, and a workspace that has to be woken: what no scenario can say.
import assert from "node:assert/strict";
import { createHash, randomBytes } from "node:crypto";
import { connect, createServer, type AddressInfo, type Server } from "node:net";
import { test, type TestContext } from "node:test";
import * as dormouse from "../src/index.js";
import { missing, NAME, RealAgent } from "./real.js";

const options = { skip: missing() ?? false };

/** Asked about each piece that the agent sends, with what has been passed on over its connection. */
type Rule = (passed: number) => "pass" | "drop" | "break";

/** A TCP line to the agent that can be told to break. */
class Line {
  rule: Rule = () => "pass";
  connections = 0;
  endpoint = "";
  #server: Server | undefined;

  static async to(endpoint: string): Promise<Line> {
    const line = new Line();
    const port = Number(endpoint.split(":").at(-1));
    const server = createServer((client) => {
      line.connections += 1;
      let passed = 0;
      const agent = connect(port, "127.0.0.1");
      const end = () => {
        client.destroy();
        agent.destroy();
      };
      for (const socket of [client, agent]) socket.on("error", end).on("close", end);
      client.on("data", (data) => void agent.write(data));
      agent.on("data", (data) => {
        const verdict = line.rule(passed);
        if (verdict === "break") end();
        if (verdict !== "pass") return;
        passed += data.length;
        client.write(data);
      });
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    line.#server = server;
    line.endpoint = `tcp:127.0.0.1:${(server.address() as AddressInfo).port}`;
    return line;
  }

  async close(): Promise<void> {
    await new Promise((resolve) => this.#server?.close(resolve));
  }
}

async function world(t: TestContext, more: dormouse.WorkspaceOptions = {}): Promise<{ agent: RealAgent; line: Line; files: dormouse.Files }> {
  const agent = await RealAgent.start([]);
  const line = await Line.to(agent.endpoint);
  const workspace = new dormouse.Workspace(NAME, { endpoint: line.endpoint, timeoutMs: 60_000, ...more });
  t.after(async () => {
    workspace.close();
    await line.close();
    await agent.stop();
  });
  return { agent, line, files: workspace.cell().files };
}

test("the lost answer of a patch is found again", options, async (t) => {
  const { agent, line, files } = await world(t);
  agent.put("/f", "a");
  await files.stat("/f");
  line.rule = () => {
    // Nothing passes until the change is there; then the line breaks, once.
    if (agent.look("/f").toString() === "a") return "drop";
    line.rule = () => "pass";
    return "break";
  };
  const done = await files.patch({ path: "/f", edits: [{ oldText: "a", newText: "aa" }] });
  assert.deepEqual([done.replayed, done.replacements], [true, 1]);
  assert.equal(agent.look("/f").toString(), "aa");
  assert.equal(line.connections, 2);
});

test("a read over a line that breaks is whole", options, async (t) => {
  const { agent, line, files } = await world(t);
  const data = randomBytes(5 << 20);
  agent.put("/five", { $base64: data.toString("base64") });
  const limits = [2 << 20, 1 << 20, 700_000, 300_000];
  line.rule = (passed) => {
    if (limits.length === 0 || passed < (limits[0] as number)) return "pass";
    limits.shift();
    return "break";
  };
  const result = await files.readWithInfo("/five");
  assert.ok(Buffer.from(result.content).equals(data));
  assert.equal(result.revision, createHash("sha256").update(data).digest("hex"));
  assert.equal(line.connections, 5);
});

test("a read resumed over a changed file is an error", options, async (t) => {
  const { agent, line, files } = await world(t);
  // More than any window lets through before the reader asks for more.
  agent.put("/large", { $fill: ["x", 64 << 20] });
  const stream = files.readChunks("/large");
  let given = (await stream.next()).value?.length ?? 0;
  assert.ok(given > 0);
  line.rule = () => {
    line.rule = () => "pass";
    agent.put("/large", "another");
    return "break";
  };
  await assert.rejects(async () => {
    for await (const piece of stream) given += piece.length;
  }, dormouse.ChangedWhileRead);
  assert.ok(given < 64 << 20);
  assert.equal(line.connections, 2);
});

test("a patch wakes a suspended workspace once", options, async (t) => {
  const woken: string[] = [];
  const { agent, files } = await world(t, {
    waker: async (name) => {
      woken.push(name);
      await agent.host("resume");
    },
  });
  agent.put("/f", "a");
  await agent.host("suspend");
  const { revision } = await files.stat("/f", { revision: true });
  assert.equal((await files.readWithInfo("/f")).origin.served_from, "disk");
  assert.deepEqual(woken, []);
  const done = await files.patch({ path: "/f", edits: [{ oldText: "a", newText: "b" }], expectedRevision: revision });
  assert.deepEqual([woken, done.previous_revision], [[NAME], revision]);
  assert.equal((await files.readWithInfo("/f")).origin.served_from, "workspace");
});

test("an unknown workspace is not found", options, async (t) => {
  const { agent } = await world(t);
  const nobody = new dormouse.Workspace("nobody/main", { endpoint: agent.endpoint });
  t.after(() => nobody.close());
  await assert.rejects(nobody.files.stat("/f"), (error: unknown) => {
    assert.ok(error instanceof dormouse.NotFound);
    assert.equal(error.reason, "workspace_not_found");
    return true;
  });
});
