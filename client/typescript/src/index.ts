// Dormouse: the files of workspaces, running or suspended.
export { Client, type Cell, hostWaker, Workspace, type WorkspaceOptions } from "./workspace.js";
export { Files, ListStream, ReadStream, SearchStream } from "./files.js";
export type { ConnectionOptions } from "./channel.js";
export type { ContentLike, Pieces } from "./content.js";
export type { Waker } from "./engine.js";
export type {
  CallOptions,
  ChangeOptions,
  Edit,
  ListOptions,
  MakeDirectoryOptions,
  MoveOptions,
  PatchArguments,
  PathLike,
  ReadChunksOptions,
  ReadOptions,
  ReadTextOptions,
  RemoveOptions,
  SearchOptions,
  Source,
  StatOptions,
  WriteOptions,
} from "./requests.js";
export type * from "./results.js";
export type { RetryPolicy } from "./retry.js";
export { OUTPUT_BYTES, type Tool, type ToolOptions, type ToolOutput, workspaceTools } from "./tools.js";
export type { Schema } from "./tool_definitions.js";
export * from "./errors.js";
