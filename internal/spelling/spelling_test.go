package spelling_test

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/dfaf701a/nestor/internal/spelling"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestDistance(t *testing.T) {
	for _, test := range []struct {
		a, b string
		want int
	}{
		{"", "", 0}, {"critic", "critic", 0},
		{"", "abc", 3},
		{"crtic", "critic", 1}, {"critics", "critic", 1}, {"cratic", "critic", 1},
		{"implementor", "implementer", 1}, {"oen", "one", 2},
		{"kitten", "sitting", 3},
	} {
		if got := spelling.Distance(test.a, test.b); got != test.want {
			t.Errorf("from %q to %q it is %d, want %d", test.a, test.b, got, test.want)
		}
		if got := spelling.Distance(test.b, test.a); got != test.want {
			t.Errorf("from %q to %q it is %d, want %d", test.b, test.a, got, test.want)
		}
	}
}
