// What models are told about the tools: the same names, words and schemas in every language. A test compares them.

/** A JSON schema, as far as the tools use it. */
export interface Schema {
  type: "object" | "array" | "string" | "boolean" | "integer";
  description?: string;
  properties?: Record<string, Schema>;
  required?: string[];
  additionalProperties?: boolean;
  items?: Schema;
  minimum?: number;
  maximum?: number;
}

/** What a model is told about one tool. */
export interface Definition {
  name: string;
  description: string;
  permission: string;
  /** As in the Model Context Protocol. */
  annotations: Record<string, string | boolean>;
  input_schema: Schema;
}

export const DEFINITIONS: Definition[] = [
  {
    "name": "search_files",
    "description": "Searches the contents of files for a text or a regular expression (not their names). Answers JSON: matches in path order with path, line, column and text; truncated and stop_reason when the search stopped early; omitted_matches when not all of them fit into the answer. Finding nothing is no error.",
    "permission": "files",
    "annotations": {
      "title": "Search files",
      "readOnlyHint": true,
      "destructiveHint": false,
      "idempotentHint": true,
      "openWorldHint": false
    },
    "input_schema": {
      "type": "object",
      "properties": {
        "path": {
          "type": "string",
          "description": "Absolute path of a directory or of one file, such as /home/user/project."
        },
        "pattern": {
          "type": "string",
          "description": "The literal text to find; with regex, an RE2 regular expression."
        },
        "regex": {
          "type": "boolean",
          "description": "Treat pattern as a regular expression. Default false."
        },
        "case_insensitive": {
          "type": "boolean",
          "description": "Ignore case. Default false."
        },
        "include": {
          "type": "array",
          "items": { "type": "string" },
          "description": "Only files that match one of these globs, such as *.py or src/**/*.ts."
        },
        "exclude": {
          "type": "array",
          "items": { "type": "string" },
          "description": "No files that match one of these globs. Default .git and node_modules; an empty list excludes nothing."
        },
        "context_lines": {
          "type": "integer",
          "minimum": 0,
          "maximum": 5,
          "description": "Lines to show before and after each match. Default 0."
        },
        "max_matches": {
          "type": "integer",
          "minimum": 1,
          "maximum": 5000,
          "description": "Stop after this many matches. Default 200."
        }
      },
      "required": ["path", "pattern"],
      "additionalProperties": false
    }
  },
  {
    "name": "edit_file",
    "description": "Changes a file: either edits (each old_text must occur exactly once unless replace_all; all are applied in order, or none), or the whole content, which also creates a file. The change is held to one revision of the file: expected_revision, or else the revision that the file has when the call begins. Answers JSON with the new revision: pass it as expected_revision of the next edit of the same file.",
    "permission": "files",
    "annotations": {
      "title": "Edit a file",
      "readOnlyHint": false,
      "destructiveHint": true,
      "idempotentHint": false,
      "openWorldHint": false
    },
    "input_schema": {
      "type": "object",
      "properties": {
        "path": {
          "type": "string",
          "description": "Absolute path of the file."
        },
        "edits": {
          "type": "array",
          "description": "Replacements, applied in order. Give either edits or content.",
          "items": {
            "type": "object",
            "properties": {
              "old_text": {
                "type": "string",
                "description": "The text to replace, exactly as it stands in the file, without line numbers in front."
              },
              "new_text": {
                "type": "string",
                "description": "What to put in its place."
              },
              "replace_all": {
                "type": "boolean",
                "description": "Replace every occurrence. Default false."
              }
            },
            "required": ["old_text", "new_text"],
            "additionalProperties": false
          }
        },
        "content": {
          "type": "string",
          "description": "The whole new content. Give either edits or content."
        },
        "expected_revision": {
          "type": "string",
          "description": "The revision that the file must have: 64 hexadecimal characters from an earlier answer, or absent for a file that must not exist yet."
        }
      },
      "required": ["path"],
      "additionalProperties": false
    }
  }
];
