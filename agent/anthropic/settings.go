package anthropic

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/anthropics/anthropic-sdk-go/option"

	"github.com/dfaf701a/nestor/agent"
	"github.com/dfaf701a/nestor/claude"
	"github.com/dfaf701a/nestor/internal/permission"
)

// The keys of Config.Credentials that this provider reads.
const (
	keyKey      = "api_key"
	tokenKey    = "auth_token"
	urlKey      = "base_url"
	modeKey     = "mode"
	partialKey  = "partial"
	fallbackKey = "fallback_model"
)

// settings are a Config, read.
type settings struct {
	agent.Config
	model, fallback string
	keep            bool // the conversation, from one message to the next
	partial         bool
	mode            claude.PermissionMode
	allowed         []permission.Rule
	approved        []permission.Rule      // that do not make a tool exist
	schema          *schema                // nil if the result is free text
	request         []option.RequestOption // where to, and in whose name
	reachable       bool                   // there is a key, a token or a base URL
}

// aliases are the short names that Claude Code has for models.
var aliases = map[string]string{
	"opus": "claude-opus-5-5", "sonnet": "claude-sonnet-5-5", "haiku": "claude-haiku-5-5", "fable": "claude-fable-5-1",
}

var permissionModes = []claude.PermissionMode{
	claude.ModeDefault, claude.ModeAcceptEdits, claude.ModeBypass, claude.ModePlan, claude.ModeDontAsk,
}

func (p *Provider) settingsOf(c agent.Config) (*settings, error) {
	s := &settings{
		Config: c, model: or(c.Model, p.opts.Model), fallback: or(c.Credentials[fallbackKey], p.opts.FallbackModel),
		mode: claude.PermissionMode(or(c.PermissionMode, string(claude.ModeAcceptEdits))),
		keep: c.Credentials[modeKey] == "client",
	}
	s.model, s.fallback = or(aliases[s.model], s.model), or(aliases[s.fallback], s.fallback)
	var errs []error
	fail := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }

	if mode := c.Credentials[modeKey]; mode != "" && mode != "query" && mode != "client" {
		fail("there is no mode %q; there are: query, client", mode)
	}
	if text := c.Credentials[partialKey]; text != "" {
		var err error
		if s.partial, err = strconv.ParseBool(text); err != nil {
			fail("the credential %q is %q: it is true or false", partialKey, text)
		}
	}
	if !slices.Contains(permissionModes, s.mode) {
		fail("provider api has no permission mode %q; it has default, acceptEdits, bypassPermissions, plan, dontAsk", s.mode)
	}
	if c.Resume != "" && !sessionName(c.Resume) {
		fail("%q is no session to resume: its name has letters, digits, - and _", c.Resume)
	}
	for _, text := range c.AllowedTools {
		r, err := permission.ParseRule(text)
		if err != nil {
			errs = append(errs, err)
		}
		s.allowed = append(s.allowed, r)
	}
	for _, text := range c.Approved {
		r, err := permission.ParseRule(text)
		if err != nil {
			errs = append(errs, err)
		}
		s.approved = append(s.approved, r)
	}
	if c.Limits.MaxTurns < 0 || c.Limits.MaxBudgetUSD < 0 || c.Limits.Timeout < 0 {
		fail("a limit is negative: zero means none")
	}
	if c.Limits.MaxBudgetUSD > 0 {
		for _, model := range []string{s.model, s.fallback} {
			if _, known := p.prices.find(model); !known && model != "" {
				fail("there is a budget of $%v, but the price of model %q is not known: name a model that has one, or set no budget; a program can give it in Options.Prices", c.Limits.MaxBudgetUSD, model)
			}
		}
	}
	if err := c.Hooks.Check(); err != nil {
		errs = append(errs, err)
	}
	if c.Schema != nil {
		var err error
		if s.schema, err = newSchema(c.Schema); err != nil {
			errs = append(errs, err)
		}
	}
	if dir, err := filepath.Abs(c.Dir); err != nil {
		fail("the directory %q: %w", c.Dir, err)
	} else {
		s.Dir = dir
	}
	s.credentials(p.opts)
	return s, errors.Join(errs...)
}

// credentials says where requests go, and in whose name. Credentials of the
// agent's own are not mixed with the provider's.
func (s *settings) credentials(o Options) {
	key, token, url := s.Credentials[keyKey], s.Credentials[tokenKey], s.Credentials[urlKey]
	if key == "" && token == "" && url == "" {
		key, token, url = o.APIKey, o.AuthToken, o.BaseURL
	} else if url == "" {
		url = o.BaseURL
	}
	s.reachable = key != "" || token != "" || url != ""
	if url != "" {
		s.request = append(s.request, option.WithBaseURL(url))
	}
	if key != "" {
		s.request = append(s.request, option.WithAPIKey(key))
	}
	if token != "" {
		s.request = append(s.request, option.WithAuthToken(token))
	}
	s.Credentials = nil // nobody needs them any more
}

// offers tells whether the model may see the tool at all. MCP servers are
// offered whole, as the CLI does.
func (s *settings) offers(name string) bool {
	if slices.Contains(s.DeniedTools, name) {
		return false
	}
	return s.AllowedTools == nil || strings.HasPrefix(name, "mcp__") ||
		slices.ContainsFunc(s.allowed, func(r permission.Rule) bool { return r.Tool == name })
}

func or(text, otherwise string) string {
	if text != "" {
		return text
	}
	return otherwise
}
