// The methods of the contract: what a repetition of each may do, and the feature that a host lacks which does not know one.
// `idempotency_level` in the contract's descriptors is the one source of what may be sent again.
import type { DescMethod } from "@bufbuild/protobuf";
import { MethodOptions_IdempotencyLevel as Level } from "@bufbuild/protobuf/wkt";

/** What sending a call a second time may do: nothing, one change however often it arrives, or nobody knows. */
export type Effect = "safe" | "idempotent" | "unknown";

/** The effect of a repetition. */
export function effect(method: DescMethod): Effect {
  switch (method.idempotency) {
    case Level.NO_SIDE_EFFECTS:
      return "safe";
    case Level.IDEMPOTENT:
      return "idempotent";
    default:
      return "unknown";
  }
}

const FEATURES: Record<string, string> = {
  Search: "file_search",
  Patch: "file_patch",
  Write: "file_write",
  Remove: "file_write",
  Move: "file_write",
  MakeDirectory: "file_write",
  // Every host should know these; one that does not is named in the same style.
  Stat: "file_stat",
  Read: "file_read",
  List: "file_list",
};

/** The feature that a host lacks which does not know the method. */
export function feature(method: DescMethod): string {
  return FEATURES[method.name] ?? method.name.replace(/(?!^)[A-Z]/g, "_$&").toLowerCase();
}
