package claude

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
)

// benchMix is what a busy session prints: mostly parts of a streaming
// response, then tool calls and their results.
func benchMix() (lines [][]byte, size int64) {
	count := map[string]int{
		"assistant text": 8, "assistant tool": 8, "assistant thinking": 2,
		"user tool result": 8, "stream text": 3, "stream json": 1,
		"result": 3, "task progress": 1, "tool progress": 1,
	}
	for _, sample := range samples {
		for range count[sample.name] {
			lines = append(lines, []byte(sample.line))
			size += int64(len(sample.line))
		}
	}
	return lines, size
}

// BenchmarkDecode decodes the mix on one core; one operation is one message.
// The second variant is encoding/json into structs with as many fields.
func BenchmarkDecode(b *testing.B) {
	lines, size := benchMix()
	run := func(b *testing.B, decode func([]byte) error) {
		b.SetBytes(size / int64(len(lines)))
		b.ReportAllocs()
		for i := 0; b.Loop(); i++ {
			if err := decode(lines[i%len(lines)]); err != nil {
				b.Fatal(err)
			}
		}
		b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
	}
	b.Run("claude", func(b *testing.B) {
		run(b, func(line []byte) error {
			_, err := Decode(line)
			return err
		})
	})
	b.Run("encoding-json", func(b *testing.B) {
		run(b, func(line []byte) error {
			var head struct {
				Type    string `json:"type"`
				Subtype string `json:"subtype"`
			}
			if err := json.Unmarshal(line, &head); err != nil {
				return err
			}
			var m any
			switch head.Type {
			case "assistant", "user":
				m = new(jsonTurn)
			case "stream_event":
				m = new(jsonStream)
			case "result":
				m = new(jsonResult)
			default:
				m = new(jsonTask)
			}
			return json.Unmarshal(line, m)
		})
	})
}

// BenchmarkReadStream does all that happens to a line: it is cut from the
// stream, looked at for control frames, and decoded.
func BenchmarkReadStream(b *testing.B) {
	lines, size := benchMix()
	stream := append(bytes.Join(lines, []byte{'\n'}), '\n')
	b.SetBytes(size / int64(len(lines)))
	b.ReportAllocs()
	r := bytes.NewReader(nil)
	f := &frameReader{r: r}
	for b.Loop() {
		line, err := f.next()
		for err == io.EOF {
			r.Reset(stream)
			f.err = nil
			line, err = f.next()
		}
		if err != nil {
			b.Fatal(err)
		}
		if peek(line) == "control_request" {
			b.Fatal("not in the mix")
		}
		if _, err := Decode(line); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "msg/s")
}

// BenchmarkDecodeLarge decodes the output of a tool that printed a megabyte of
// source code.
func BenchmarkDecodeLarge(b *testing.B) {
	code := strings.Repeat("\tif err != nil {\n\t\treturn fmt.Errorf(\"opening %s: %w\", path, err) // über\n\t}\n", 12000)
	quoted, err := json.Marshal(code)
	if err != nil {
		b.Fatal(err)
	}
	line := fmt.Appendf(nil, `{"type":"user","message":{"content":[{"type":"tool_result","tool_use_id":"t","content":%s}]}}`, quoted)
	b.SetBytes(int64(len(line)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := Decode(line); err != nil {
			b.Fatal(err)
		}
	}
}

type jsonHeader struct {
	Type            string `json:"type"`
	Subtype         string `json:"subtype"`
	UUID            string `json:"uuid"`
	SessionID       string `json:"session_id"`
	ParentToolUseID string `json:"parent_tool_use_id"`
}

type jsonUsage struct {
	Input         int `json:"input_tokens"`
	Output        int `json:"output_tokens"`
	CacheRead     int `json:"cache_read_input_tokens"`
	CacheCreation int `json:"cache_creation_input_tokens"`
	Creation      struct {
		M5 int `json:"ephemeral_5m_input_tokens"`
		H1 int `json:"ephemeral_1h_input_tokens"`
	} `json:"cache_creation"`
	ServiceTier string `json:"service_tier"`
}

type jsonTurn struct {
	jsonHeader
	Message struct {
		ID      string `json:"id"`
		Model   string `json:"model"`
		Content []struct {
			Type      string          `json:"type"`
			Text      string          `json:"text"`
			Thinking  string          `json:"thinking"`
			Signature string          `json:"signature"`
			ID        string          `json:"id"`
			Name      string          `json:"name"`
			Input     json.RawMessage `json:"input"`
			ToolUseID string          `json:"tool_use_id"`
			Content   json.RawMessage `json:"content"`
			IsError   bool            `json:"is_error"`
		} `json:"content"`
		StopReason string    `json:"stop_reason"`
		Usage      jsonUsage `json:"usage"`
	} `json:"message"`
	AgentID         string          `json:"agent_id"`
	SubagentType    string          `json:"subagent_type"`
	TaskDescription string          `json:"task_description"`
	ToolUseResult   json.RawMessage `json:"tool_use_result"`
}

type jsonStream struct {
	jsonHeader
	Event struct {
		Type  string `json:"type"`
		Index int    `json:"index"`
		Delta struct {
			Type        string `json:"type"`
			Text        string `json:"text"`
			PartialJSON string `json:"partial_json"`
			Thinking    string `json:"thinking"`
		} `json:"delta"`
	} `json:"event"`
}

type jsonResult struct {
	jsonHeader
	IsError       bool      `json:"is_error"`
	Result        string    `json:"result"`
	StopReason    string    `json:"stop_reason"`
	Terminal      string    `json:"terminal_reason"`
	NumTurns      int       `json:"num_turns"`
	DurationMS    float64   `json:"duration_ms"`
	APIDurationMS float64   `json:"duration_api_ms"`
	TTFT          float64   `json:"ttft_ms"`
	Cost          float64   `json:"total_cost_usd"`
	Usage         jsonUsage `json:"usage"`
	ModelUsage    map[string]struct {
		Input         int     `json:"inputTokens"`
		Output        int     `json:"outputTokens"`
		CacheRead     int     `json:"cacheReadInputTokens"`
		CacheCreation int     `json:"cacheCreationInputTokens"`
		Cost          float64 `json:"costUSD"`
		Window        int     `json:"contextWindow"`
		MaxOutput     int     `json:"maxOutputTokens"`
	} `json:"modelUsage"`
	Denials []struct {
		Name  string          `json:"tool_name"`
		ID    string          `json:"tool_use_id"`
		Input json.RawMessage `json:"tool_input"`
	} `json:"permission_denials"`
	FastMode string `json:"fast_mode_state"`
	Index    *int   `json:"result_index"`
}

type jsonTask struct {
	jsonHeader
	TaskID       string `json:"task_id"`
	RunID        string `json:"run_id"`
	ToolUseID    string `json:"tool_use_id"`
	ToolName     string `json:"tool_name"`
	Description  string `json:"description"`
	SubagentType string `json:"subagent_type"`
	Usage        struct {
		Tokens   int `json:"total_tokens"`
		ToolUses int `json:"tool_uses"`
		Duration int `json:"duration_ms"`
	} `json:"usage"`
	LastTool string  `json:"last_tool_name"`
	Summary  string  `json:"summary"`
	Elapsed  float64 `json:"elapsed_time_seconds"`
}
