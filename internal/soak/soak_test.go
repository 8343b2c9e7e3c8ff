package soak

import (
	"slices"
	"testing"
)

// Slices differ by seed and by test, are the same for the same, and cover the suite.
func TestDraw(t *testing.T) {
	t.Setenv("NESTOR_SOAK", "")
	all := []int{0, 1, 2, 3, 4, 5, 6, 7, 8, 9}
	seen := map[int]bool{}
	for _, seed := range []string{"1", "2", "3", "4", "5", "6", "7", "8", "9", "10", "11", "12", "13", "14", "15", "16"} {
		t.Setenv("NESTOR_SEED", seed)
		one := Draw(t, 3, all)
		if again := Draw(t, 3, all); len(one) != 3 || !slices.IsSorted(one) || !slices.Equal(one, again) {
			t.Errorf("seed %s: %v, then %v", seed, one, again)
		}
		for _, i := range one {
			seen[i] = true
		}
		mine := Rand(t).Uint64()
		t.Run("another", func(t *testing.T) {
			if Rand(t).Uint64() == mine {
				t.Errorf("with seed %s, two tests choose alike", seed)
			}
		})
	}
	if len(seen) != len(all) {
		t.Errorf("16 seeds choose only %v", seen)
	}
	if whole := Draw(t, 11, all); !slices.Equal(whole, all) {
		t.Errorf("more than there are: %v", whole)
	}
	t.Setenv("NESTOR_SOAK", "1")
	if whole := Draw(t, 3, all); !slices.Equal(whole, all) || Of(1, 2) != 2 {
		t.Errorf("in a soak: %v, %d", whole, Of(1, 2))
	}
}
