// The README's examples: they compile under --strict, and they run as they stand against the real agent.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { test } from "node:test";
import * as dormouse from "../src/index.js";
import { missing, NAME, RealAgent } from "./real.js";

const root = fileURLToPath(new URL("../../", import.meta.url));
const EXAMPLES = [...readFileSync(join(root, "README.md"), "utf8").matchAll(/```ts\n(.*?)```/gs)].map((found) => found[1] as string);

/** A folder from which "dormouse-sdk" is found by its name, inside this package (Node: self-referencing a package). */
function inside(work: (folder: string) => void | Promise<void>): Promise<void> {
  mkdirSync(join(root, "dist"), { recursive: true });
  const folder = mkdtempSync(join(root, "dist", "example-"));
  return Promise.resolve(work(folder)).finally(() => rmSync(folder, { recursive: true, force: true }));
}

function compile(folder: string, text: string): string {
  writeFileSync(join(folder, "example.ts"), text);
  const options = { strict: true, target: "ES2022", module: "NodeNext", types: ["node"], skipLibCheck: true };
  const compilerOptions = { ...options, rootDir: folder, outDir: folder, exactOptionalPropertyTypes: true };
  writeFileSync(join(folder, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["example.ts"] }));
  try {
    return execFileSync(process.execPath, [join(root, "node_modules/typescript/bin/tsc"), "-p", folder], { encoding: "utf8" });
  } catch (error) {
    return (error as { stdout: string }).stdout;
  }
}

test("the examples compile, and a mistake does not", async () => {
  assert.equal(EXAMPLES.length, 2);
  await inside((folder) => {
    for (const example of EXAMPLES) assert.equal(compile(folder, example), "");
    const mistake = (EXAMPLES[0] as string).replace("contextLines", "context_lines").replace("stop_reason", "stopReason");
    assert.match(compile(folder, mistake), /context_lines[\s\S]*stopReason/);
  });
});

test("the examples run", { skip: missing() ?? false }, async () => {
  const agent = await RealAgent.start([]);
  try {
    agent.put("/home/user/project/app.py", "# TODO: nothing yet\n");
    await inside((folder) => {
      const said = EXAMPLES.map((example) => {
        const text = example.replaceAll("unix:/run/dormouse/files.sock", agent.endpoint);
        assert.equal(compile(folder, text), "");
        return execFileSync(process.execPath, [join(folder, "example.js")], { encoding: "utf8" });
      });
      assert.match(said[0] as string, /app\.py 1\nfalse \n# TODO: nothing yet\n\n20\n/);
      assert.match(said[1] as string, /search_files \[ 'path' \]\n\{"matches":\[\{"path":"\/home\/user\/project\/app\.py","line":1/);
    });
    const files = new dormouse.Workspace(NAME, { endpoint: agent.endpoint });
    assert.equal(await files.cell().files.readText("/home/user/project/app.py"), "# DONE: nothing yet\n");
    files.close();
  } finally {
    await agent.stop();
  }
});
