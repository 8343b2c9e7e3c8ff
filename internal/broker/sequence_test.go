package broker

import "testing"

// What a server answers when it has stored a message is read alike, in whatever form it
// comes; what says nothing of a sequence is an error.
func TestSequence(t *testing.T) {
	for answer, want := range map[string]uint64{
		`{"stream":"KV_RUNS","seq":17}`:                    17,
		`{"stream":"KV_RUNS", "seq":17}`:                   17,
		`{"stream":"KV_RUNS","domain":"hub","seq":17}`:     17,
		`{"stream":"S","seq":17,"duplicate":true}`:         17,
		`{"stream":"S","seq":17,"batch":"x","count":3}`:    17,
		`{"seq":18446744073709551615,"stream":"S"}`:        1<<64 - 1,
		`{"stream":"S","seq":18446744073709551616}`:        0,
		`{"stream":"S","seq":-1}`:                          0,
		`{"stream":"S","seq":}`:                            0,
		`{"stream":"S"}`:                                   0,
		`{"error":{"code":400,"err_code":10071},"seq":17}`: 0,
		`[]`: 0,
		``:   0,
	} {
		if got, err := sequence([]byte(answer)); got != want || (err == nil) != (want != 0) {
			t.Errorf("%s: %d, %v", answer, got, err)
		}
	}
	_, err := sequence([]byte(`{"error":{"code":400,"err_code":10071,"description":"wrong last sequence: 3"},"stream":"S","seq":0}`))
	if !IsConflict(err) {
		t.Errorf("a refusal: %v", err)
	}
}
