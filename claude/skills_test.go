package claude

import (
	"slices"
	"strings"
	"testing"
)

func TestSkillRules(t *testing.T) {
	tests := []struct {
		name string
		o    Options
		want []string
	}{
		{"item 62: unset", Options{AutoApprove: []string{"Read"}}, []string{"--allowedTools=Read"}},
		{"item 63: all", Options{AllSkills: true}, []string{"--allowedTools=Skill"}},
		{"item 64: none", Options{Skills: []string{}}, nil},
		{"item 65: some", Options{Skills: []string{"pdf", "a:b"}}, []string{"--allowedTools=Skill(pdf),Skill(a:b)"}},
		{"item 66: after other rules", Options{Skills: []string{"pdf"}, AutoApprove: []string{"Z", "A"}}, []string{"--allowedTools=Z,A,Skill(pdf)"}},
		{"item 67: setting sources stay", Options{Skills: []string{"pdf"}, SettingSources: []SettingSource{SourceLocal}},
			[]string{"--allowedTools=Skill(pdf)", "--setting-sources=local"}},
		{"item 69: not twice", Options{Skills: []string{"pdf"}, AutoApprove: []string{"Skill(pdf)", "Read"}}, []string{"--allowedTools=Skill(pdf),Read"}},
		{"item 69: not twice for all", Options{AllSkills: true, AutoApprove: []string{"Skill"}}, []string{"--allowedTools=Skill"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			if got, want := mustLaunch(t, tt.o).args, slices.Concat(baseArguments, tt.want); !slices.Equal(got, want) {
				t.Errorf("got  %q\nwant %q", got, want)
			}
		})
	}
}

func TestSkillNames(t *testing.T) {
	bad := map[string][]string{
		"item 70": {"x),Bash(*", "(", ")", ",", "a,b"},
		"item 71": {"a\x00b", "a\nb", "a\tb", "a\x7fb", "a\u0085b", "a\u009fb", "\x1b"},
		"item 72": {"", " ", "\t"},
		"item 74": {"*", "a:*", "a *"},
		"item 76": {`a\`, `a\\b`, `\\`},
		"item 77": {"\ufeffa", "a\ufeff", " a", "a ", "\u00a0a", "/a", "a\xff", "\xed\xa0\x80"},
	}
	for item, names := range bad {
		for _, name := range names {
			t.Run(item+": "+name, func(t *testing.T) {
				_, err := (&Options{Skills: []string{"ok", name}}).launchOn("linux", "c", nil)
				wantSaid(t, err, "Skills", "skill")
			})
		}
	}
	t.Run("item 74: the way out of *", func(t *testing.T) { wantSaid(t, checkSkill("*"), "AllSkills") })
	t.Run("item 72: the word", func(t *testing.T) { wantSaid(t, checkSkill(" "), "non-empty") })
	for _, name := range []string{"pdf", "my-skill", "v1.2", "plugin:skill", "two words", `a\b`, "größe", "日本", "a*b", "a/b"} {
		t.Run("item 78: "+name, func(t *testing.T) {
			if err := checkSkill(name); err != nil {
				t.Error(err)
			}
		})
	}
}

// However a skill is called, its rule stays one rule about one skill.
func FuzzSkillName(f *testing.F) {
	for _, s := range []string{"pdf", "x),Bash(*", "a b", `a\`, "*", "a:*", "\ufeff"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, name string) {
		if checkSkill(name) != nil {
			return
		}
		rule := "Skill(" + name + ")"
		if strings.Count(rule, "(") != 1 || strings.Count(rule, ")") != 1 || strings.Contains(rule, ",") || wholeTool(rule) {
			t.Errorf("%q passed", name)
		}
	})
}
