// Makes the stubs under src/gen anew from the contract, with the pinned generator of package.json.
//
//     node generate.mjs           writes them
//     node generate.mjs --check   fails where they differ from what would be written
import { execFileSync } from "node:child_process";
import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, join } from "node:path";
import { fileURLToPath } from "node:url";

const here = fileURLToPath(new URL(".", import.meta.url));
const bin = join(here, "node_modules", ".bin");
const check = process.argv[2] === "--check";

function write(out) {
  const template = JSON.stringify({
    version: "v2",
    plugins: [{ local: "protoc-gen-es", out, opt: ["target=ts", "import_extension=js"] }],
  });
  const contract = join(here, "..", "..", "proto");
  const inputs = [
    [contract, "--path", join(contract, "dormouse", "files"), "--path", join(contract, "dormouse", "host")],
    [join(here, "protos")],
  ];
  for (const input of inputs) {
    execFileSync(join(bin, "buf"), ["generate", ...input, "--template", template], {
      cwd: here,
      stdio: "inherit",
      env: { ...process.env, PATH: bin + delimiter + process.env.PATH },
    });
  }
}

const committed = join(here, "src", "gen");
if (check) {
  const made = mkdtempSync(join(tmpdir(), "dormouse-gen-"));
  try {
    write(made);
    const names = readdirSync(made, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
    const stale = names.filter((name) => {
      try {
        return readFileSync(join(made, name), "utf8") !== readFileSync(join(committed, name), "utf8");
      } catch {
        return true;
      }
    });
    for (const name of stale) console.error(`stale: ${name}`);
    process.exitCode = stale.length > 0 || names.length === 0 ? 1 : 0;
  } finally {
    rmSync(made, { recursive: true, force: true });
  }
} else {
  write(committed);
}
