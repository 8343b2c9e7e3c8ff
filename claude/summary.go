package claude

import (
	"encoding/json"
	"strings"
	"time"
)

// Summary is what a [SummaryLister] keeps of a session so that listing need
// not load its transcript.
type Summary struct {
	Session string
	// Modified is when the store last wrote the session, by the same clock as
	// [SessionStamp]. The store sets it.
	Modified time.Time
	// Data belongs to this package. Stores keep it as it is.
	Data json.RawMessage
}

// FoldSummary returns the summary of a session after entries were appended to
// it. A store that maintains summaries calls it from Append for keys without
// subpath, with the zero Summary the first time, and then sets Modified, which
// FoldSummary leaves as it was. It keeps nothing of prev and entries.
func FoldSummary(prev Summary, key SessionKey, entries []json.RawMessage) Summary {
	var d sessionDigest
	unmarshalLoosely(prev.Data, &d)
	if d != (sessionDigest{}) {
		d.Begun = true // other SDKs do not say so
	}
	for _, l := range parseEntries(entries) {
		d.add(l)
	}
	prev.Session = key.Session
	prev.Data, _ = json.Marshal(&d) // strings, bools and a number always encode
	return prev
}

// sessionDigest is what a listing shows of a session, gathered entry by entry.
// It is also the data of a [Summary], under the names that other SDKs use.
type sessionDigest struct {
	Begun       bool   `json:"begun,omitempty"` // whether there was an entry
	IsSidechain bool   `json:"isSidechain,omitempty"`
	CreatedAt   int64  `json:"createdAt,omitempty"` // milliseconds since 1970
	Cwd         string `json:"cwd,omitempty"`
	Entrypoint  string `json:"entrypoint,omitempty"`

	FirstPrompt   string `json:"firstPrompt,omitempty"`
	Command       string `json:"commandFallback,omitempty"` // first slash command, when nothing was said
	Media         string `json:"mediaFallback,omitempty"`   // "Image" or "Document", when nothing was said
	CustomTitle   string `json:"customTitle,omitempty"`
	AITitle       string `json:"aiTitle,omitempty"`
	LastPrompt    string `json:"lastPrompt,omitempty"`
	SummaryHint   string `json:"summaryHint,omitempty"`
	GitBranch     string `json:"gitBranch,omitempty"`
	Tag           string `json:"tag,omitempty"`
	RelocatedCwd  string `json:"relocatedCwd,omitempty"`
	ContinuedIn   string `json:"continuedIn,omitempty"`
	LastPromptAt  int64  `json:"lastPromptAt,omitempty"` // milliseconds since 1970
	LastTimestamp int64  `json:"lastTimestamp,omitempty"`
}

// add takes one more entry into account. What is set once stays; of the rest
// the last wins.
func (d *sessionDigest) add(l *transcriptLine) {
	if !d.Begun {
		d.Begun = true
		d.IsSidechain = l.IsSidechain
	}
	if t := l.time(); !t.IsZero() {
		d.LastTimestamp = t.UnixMilli()
		if d.CreatedAt == 0 {
			d.CreatedAt = t.UnixMilli()
		}
	}
	setOnce(&d.Cwd, l.Cwd)
	setOnce(&d.Entrypoint, l.Entrypoint)
	setLast(&d.GitBranch, l.GitBranch)
	// Tool inputs may hold the same names, so each counts only in its own
	// type of entry.
	switch l.Type {
	case "custom-title":
		setLast(&d.CustomTitle, l.CustomTitle)
	case "ai-title":
		setLast(&d.AITitle, l.AITitle)
	case "last-prompt":
		setLast(&d.LastPrompt, l.LastPrompt)
	case "summary":
		setLast(&d.SummaryHint, l.Summary)
	case "tag":
		d.Tag = l.Tag // an empty one clears
	case "relocated":
		setLast(&d.RelocatedCwd, l.RelocatedCwd)
	case "continued-in":
		setLast(&d.ContinuedIn, l.ContinuedIn)
	case "user":
		d.addPrompt(l)
	}
}

func setOnce(field *string, value string) {
	if *field == "" {
		*field = value
	}
}

func setLast(field *string, value string) {
	if value != "" {
		*field = value
	}
}

// addPrompt looks for the first thing that a human said.
func (d *sessionDigest) addPrompt(l *transcriptLine) {
	if l.IsMeta || l.IsCompact {
		return
	}
	blocks := l.content()
	for _, b := range blocks {
		if b.Type == "tool_result" {
			return
		}
	}
	if t := l.time(); !t.IsZero() && len(blocks) > 0 {
		d.LastPromptAt = t.UnixMilli()
	}
	for _, b := range blocks {
		if d.FirstPrompt != "" {
			return
		}
		switch b.Type {
		case "image":
			setOnce(&d.Media, "Image")
		case "document":
			setOnce(&d.Media, "Document")
		case "text":
			d.addPromptText(b.Text)
		}
	}
}

var (
	commandName = pattern(`<command-name>(.*?)</command-name>`)
	bashInput   = pattern(`<bash-input>(.*?)</bash-input>`)
	// generated is how texts start that the CLI or an editor put in.
	generated = pattern(`^(<[a-z][\w-]*[\s>]|\[Request interrupted by user)`)
)

// maxFirstPrompt is how many characters of the first prompt are kept.
const maxFirstPrompt = 200

func (d *sessionDigest) addPromptText(text string) {
	text = strings.TrimSpace(strings.NewReplacer("\r\n", " ", "\n", " ", "\r", " ").Replace(text))
	if text == "" {
		return
	}
	if m := commandName().FindStringSubmatch(text); m != nil {
		setOnce(&d.Command, cutPrompt(strings.TrimSpace(m[1])))
		return
	}
	if m := bashInput().FindStringSubmatch(text); m != nil {
		d.FirstPrompt = cutPrompt("! " + strings.TrimSpace(m[1]))
		return
	}
	if !generated().MatchString(text) {
		d.FirstPrompt = cutPrompt(text)
	}
}

func cutPrompt(text string) string {
	runes := 0
	for i := range text {
		if runes == maxFirstPrompt {
			return strings.TrimSpace(text[:i]) + "…"
		}
		runes++
	}
	return text
}

// info makes the public form of d. It reports false for a session that no
// listing shows: a sidechain, or one about which there is nothing to say.
func (d *sessionDigest) info(id, dir string, modified time.Time) (SessionInfo, bool) {
	info := SessionInfo{
		ID:          id,
		Title:       firstNonEmpty(d.CustomTitle, d.AITitle),
		FirstPrompt: firstNonEmpty(d.FirstPrompt, d.Command),
		GitBranch:   d.GitBranch,
		Dir:         firstNonEmpty(d.RelocatedCwd, d.Cwd, dir),
		Tag:         d.Tag,
		Modified:    modified,
	}
	if d.CreatedAt != 0 {
		info.Created = time.UnixMilli(d.CreatedAt)
	}
	info.Summary = firstNonEmpty(info.Title, d.LastPrompt, d.SummaryHint, info.FirstPrompt, d.Media)
	return info, info.Summary != "" && !d.IsSidechain
}

// programmatic tells whether a program drove the session and not a person.
func (d *sessionDigest) programmatic() bool {
	switch d.Entrypoint {
	case "sdk-cli", "sdk-ts", "sdk-py", "sdk-go", "daemon", "daemon-worker":
		return true
	}
	return false
}

func firstNonEmpty(values ...string) string {
	for _, v := range values {
		if v != "" {
			return v
		}
	}
	return ""
}
