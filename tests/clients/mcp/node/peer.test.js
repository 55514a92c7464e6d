// `dormouse mcp` beside the official TypeScript SDK of the Model Context Protocol, over stdio and streamable HTTP, against a real
// agent. The environment names the programs: DORMOUSED and DORMOUSE.
import assert from "node:assert/strict";
import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { once } from "node:events";
import { mkdir, mkdtemp, readFile, rm, writeFile } from "node:fs/promises";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before, test } from "node:test";

import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";

const NAME = "customer-42/main";
const { DORMOUSED, DORMOUSE } = process.env;
let place;
let agent;

before(async () => {
  place = await mkdtemp(join(tmpdir(), "dormouse-"));
  await mkdir(join(place, "files/p"), { recursive: true });
  agent = spawn(
    DORMOUSED,
    ["serve", "--log-format", "json", "--listen", `unix:${place}/f`, "--host-listen", `unix:${place}/h`]
      .concat(["--state-dir", `${place}/agent`, "--workspace", `${NAME}=directory:${place}/files`]),
    { stdio: ["ignore", "pipe", "ignore"] },
  );
  await once(createInterface(agent.stdout), "line");
});

after(async () => {
  agent.kill("SIGTERM");
  const [code] = await once(agent, "exit");
  await rm(place, { recursive: true });
  assert.equal(code, 0);
});

const environment = () => ({
  PATH: process.env.PATH,
  DORMOUSE_ENDPOINT: `unix:${place}/f`,
  DORMOUSE_HOST_ENDPOINT: `unix:${place}/h`,
  XDG_CONFIG_HOME: "/nonexistent",
});

/** A client of a `dormouse mcp` of its own, and the way to end both. */
async function connect(transport, ...more) {
  const client = new Client({ name: "peer", version: "1" });
  const args = ["mcp", "--workspace", NAME, ...more];
  if (transport === "stdio") {
    await client.connect(new StdioClientTransport({ command: DORMOUSE, args, env: environment() }));
    return { client, close: () => client.close() };
  }
  const server = spawn(DORMOUSE, [...args, "--http", "127.0.0.1:0"], { env: environment(), stdio: ["ignore", "ignore", "pipe"] });
  const [said] = await once(createInterface(server.stderr), "line");
  const url = /http:\/\/\S+/.exec(said)?.[0];
  assert.ok(url, said);
  await client.connect(new StreamableHTTPClientTransport(new URL(url)));
  const close = async () => {
    await client.close();
    server.kill("SIGTERM");
    await once(server, "exit");
  };
  return { client, close };
}

for (const transport of ["stdio", "http"]) {
  test(`a session over ${transport}`, async () => {
    await writeFile(join(place, "files/p/app.py"), "import os\n# TODO: tidy\n");
    const { client, close } = await connect(transport);
    try {
      assert.equal(client.getServerVersion()?.name, "dormouse");
      assert.match(client.getServerVersion()?.version ?? "", /^\d+\.\d+\.\d+$/);
      const { tools } = await client.listTools();
      assert.deepEqual(tools.map((tool) => tool.name), ["search_files", "edit_file", "read_file", "list_files", "stat_file"]);
      for (const tool of tools) {
        assert.equal(tool.annotations?.readOnlyHint, tool.name !== "edit_file");
        assert.equal(tool.annotations?.openWorldHint, false);
      }
      const call = async (name, args) => {
        const result = await client.callTool({ name, arguments: args });
        assert.equal(result.content.length, 1);
        return { text: result.content[0].text, isError: result.isError === true };
      };
      const found = await call("search_files", { path: "/p", pattern: "TODO", include: ["*.py"] });
      assert.deepEqual(JSON.parse(found.text).matches.map((match) => match.line), [2]);
      const read = await call("read_file", { path: "/p/app.py" });
      assert.ok(read.text.endsWith("\nimport os\n# TODO: tidy\n"), read.text);
      const edited = await call("edit_file", { path: "/p/app.py", edits: [{ old_text: "TODO: ", new_text: "" }] });
      const content = await readFile(join(place, "files/p/app.py"));
      assert.equal(JSON.parse(edited.text).revision, createHash("sha256").update(content).digest("hex"));
      assert.equal(content.toString(), "import os\n# tidy\n");
      const wrong = await call("edit_file", { path: "/p/app.py", edits: [{ old_text: "a", new_txt: "b" }] });
      assert.ok(wrong.isError && wrong.text.startsWith("invalid_argument: `edits[0].new_txt`: unknown field"), wrong.text);
      await assert.rejects(client.callTool({ name: "no_such_tool", arguments: {} }));
    } finally {
      await close();
    }
  });

  test(`reading only, over ${transport}`, async () => {
    const { client, close } = await connect(transport, "--permissions", "files=read");
    try {
      const { tools } = await client.listTools();
      assert.ok(!tools.some((tool) => tool.name === "edit_file") && tools.length === 4);
      await assert.rejects(client.callTool({ name: "edit_file", arguments: { path: "/x", content: "" } }));
    } finally {
      await close();
    }
  });
}
