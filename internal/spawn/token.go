package spawn

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"sync"
)

// Tokens are the capabilities of the attempts that work in this process: whoever
// shows one may do what its [Run] can. A token is never kept, only its hash; it
// dies when it is revoked, and with the process. The zero value has none; methods
// may be called from any goroutine.
type Tokens struct {
	mu   sync.Mutex // guards runs
	runs map[[sha256.Size]byte]*Run
}

// Grant returns a new token for r.
func (t *Tokens) Grant(r *Run) string {
	var b [32]byte
	rand.Read(b[:])
	token := hex.EncodeToString(b[:])
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.runs == nil {
		t.runs = map[[sha256.Size]byte]*Run{}
	}
	t.runs[sha256.Sum256([]byte(token))] = r
	return token
}

// Find returns the run of a token, nil if there is none.
func (t *Tokens) Find(token string) *Run {
	hash := sha256.Sum256([]byte(token)) // how long a look-up takes tells of it nothing
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.runs[hash]
}

// Revoke takes all tokens of r back.
func (t *Tokens) Revoke(r *Run) {
	t.mu.Lock()
	defer t.mu.Unlock()
	for hash, run := range t.runs {
		if run == r {
			delete(t.runs, hash)
		}
	}
}
