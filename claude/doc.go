// Package claude drives the Claude Code CLI over its JSON lines protocol.
//
// It imports nothing but the standard library and the MCP Go SDK, keeps no
// global state, and treats everything that the CLI prints as foreign: what it
// does not know passes through with its raw bytes.
package claude
