package claude

// secrets are what must not stand in an error: keys and tokens, by their form.
var secrets = pattern(`(?i)` +
	`sk-[a-z0-9_-]{8,}` + // Anthropic and others
	`|bearer\s+[a-z0-9._~+/=-]{8,}` +
	`|eyJ[a-z0-9_-]{10,}\.[a-z0-9_-]{10,}\.[a-z0-9_-]*` + // JSON web tokens
	`|(?:AKIA|ASIA)[A-Z0-9]{16}` + // AWS
	`|gh[pousr]_[a-z0-9]{20,}|github_pat_[a-z0-9_]{20,}` +
	`|xox[abprs]-[a-z0-9-]{10,}` + // Slack
	`|AIza[a-z0-9_-]{30,}` + // Google
	`|(?:api[_-]?key|token|secret|password)["']?\s*[=:]\s*["']?[^\s"',;]{6,}`)

// redact takes secrets out of text.
func redact(text string) string { return secrets().ReplaceAllString(text, "[redacted]") }
