// A model's arguments, read by a tool's schema. What is meant clearly is taken ("3" for 3, a JSON text for a list); what is
// not is refused with the field's name.
import { InvalidRequest } from "./errors.js";
import type { Schema } from "./tool_definitions.js";

/** Deeper than any schema of ours; a model's JSON may be deeper than the stack. */
const DEPTH_MAX = 8;

/** The arguments in the schema's own types; a null is as if left out. Throws InvalidRequest. */
export function decode(schema: Schema, given: unknown): Record<string, unknown> {
  return value(schema, typeof given === "string" ? parsed(given) : given, "", 0) as Record<string, unknown>;
}

function refused(field: string, fact: string): InvalidRequest {
  const where = field || "arguments";
  return new InvalidRequest(`\`${where}\`: ${fact}`, {
    code: "invalid_argument",
    reason: "invalid_request",
    details: { field: where, next: "call the tool again with this mended" },
    grpcCode: "INVALID_ARGUMENT",
  });
}

/** The value of a JSON text; what is none is refused by whoever expects an object or a list. */
function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function value(schema: Schema, given: unknown, field: string, depth: number): unknown {
  if (depth > DEPTH_MAX) throw refused(field, "nested too deep");
  switch (schema.type) {
    case "object":
      return object(schema, given, field, depth);
    case "array":
      return array(schema.items as Schema, given, field, depth);
    case "string":
      if (typeof given !== "string") throw refused(field, "text is expected");
      return given;
    case "boolean":
      if (typeof given === "string" && /^(true|false)$/i.test(given)) return given.toLowerCase() === "true";
      if (typeof given !== "boolean") throw refused(field, "true or false is expected");
      return given;
    case "integer":
      return integer(schema, given, field);
  }
}

function object(schema: Schema, given: unknown, field: string, depth: number): Record<string, unknown> {
  const members = typeof given === "string" ? parsed(given) : given;
  if (typeof members !== "object" || members === null || Array.isArray(members)) throw refused(field, "an object is expected");
  const out: Record<string, unknown> = {};
  const properties = new Map(Object.entries(schema.properties ?? {}));
  for (const [name, member] of Object.entries(members)) {
    const inner = field ? `${field}.${name}` : name;
    const property = properties.get(name);
    if (property === undefined) throw refused(inner, "unknown field");
    if (member !== null && member !== undefined) out[name] = value(property, member, inner, depth + 1);
  }
  for (const name of schema.required ?? []) {
    if (!(name in out)) throw refused(field ? `${field}.${name}` : name, "missing");
  }
  return out;
}

function array(items: Schema, given: unknown, field: string, depth: number): unknown[] {
  let list = given;
  if (typeof list === "string") {
    const plain = items.type === "string" && !list.trimStart().startsWith("[");
    list = plain ? [list] : parsed(list);
  }
  if (!Array.isArray(list)) throw refused(field, "a list is expected");
  return list.map((item, index) => value(items, item, `${field}[${index}]`, depth + 1));
}

function integer(schema: Schema, given: unknown, field: string): number {
  const number = typeof given === "string" && /^-?[0-9]{1,15}$/.test(given) ? Number(given) : given;
  if (typeof number !== "number" || !Number.isSafeInteger(number)) throw refused(field, "a whole number is expected");
  const { minimum = -Infinity, maximum = Infinity } = schema;
  if (number < minimum || number > maximum) throw refused(field, `a number from ${minimum} to ${maximum} is expected`);
  return number;
}
