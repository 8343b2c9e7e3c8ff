package claude

import "encoding/json"

func rawEntries(lines ...string) []json.RawMessage {
	var raw []json.RawMessage
	for _, l := range lines {
		raw = append(raw, json.RawMessage(l))
	}
	return raw
}
