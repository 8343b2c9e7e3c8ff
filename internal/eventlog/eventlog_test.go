package eventlog

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/dfaf701a/nestor/internal/broker"
)

func event(format string, args ...any) json.RawMessage {
	text, _ := json.Marshal(fmt.Sprintf(format, args...))
	return text
}

// first collects events until there are n.
func first(t testing.TB, events func(func(Event, error) bool), n int) []Event {
	t.Helper()
	var all []Event
	for e, err := range events {
		if err != nil {
			t.Fatalf("after %d events: %v", len(all), err)
		}
		if all = append(all, e); len(all) == n {
			break
		}
	}
	return all
}

func texts(events []Event) string {
	var all []string
	for _, e := range events {
		var s string
		json.Unmarshal(e.Data, &s)
		all = append(all, s)
	}
	return strings.Join(all, " ")
}

func appendThenFollow(t *testing.T, at *place) {
	l := at.open(t, Options{})
	ctx := soon(t)
	positions, err := l.Append(ctx, "r", "r", event("a"), event("b"))
	if err != nil {
		t.Fatal(err)
	}
	more, err := l.Append(ctx, "r", "child", event("c"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, "other", "other", event("d")); err != nil {
		t.Fatal(err)
	}
	positions = append(positions, more...)
	if !slices.IsSorted(positions) || positions[0] == 0 || len(positions) != 3 || positions[2] >= 1<<53 {
		t.Errorf("positions %v", positions)
	}
	for _, test := range []struct {
		filter Filter
		after  Position
		want   string
	}{
		{Filter{}, 0, "a b c d"},
		{Filter{}, positions[0], "b c d"},
		{Filter{Root: "r"}, 0, "a b c"},
		{Filter{Root: "r"}, positions[1], "c"},
		{Filter{Root: "r", Run: "child"}, 0, "c"},
		{Filter{Run: "child"}, 0, "c"},
		{Filter{Run: "r"}, positions[0], "b"},
	} {
		n := len(strings.Fields(test.want))
		got := first(t, l.Follow(ctx, test.filter, test.after), n)
		if texts(got) != test.want {
			t.Errorf("%+v after %d: got %s, want %s", test.filter, test.after, texts(got), test.want)
		}
		var read []Event
		for e, err := range l.Read(ctx, test.filter, test.after) {
			if err != nil {
				t.Fatal(err)
			}
			read = append(read, e)
		}
		if texts(read) != test.want {
			t.Errorf("%+v after %d: read %s, want %s", test.filter, test.after, texts(read), test.want)
		}
	}
	got := first(t, l.Follow(ctx, Filter{Root: "r"}, 0), 3)
	for i, e := range got {
		if e.Position != positions[i] || e.Root != "r" || e.Live {
			t.Errorf("event %d: %+v", i, e)
		}
	}
	if got[1].N != 1 || got[2].N != 0 || got[2].Run != "child" {
		t.Errorf("got %+v", got)
	}
}

func followGoesOnLive(t *testing.T, at *place) {
	l, other := at.open(t, Options{}), (*Log)(nil)
	if at.servers != nil {
		other = at.open(t, Options{}) // another process, as far as the log knows
	} else {
		other = l
	}
	ctx := soon(t)
	if _, err := l.Append(ctx, "r", "r", event("0")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for e, err := range other.Follow(ctx, Filter{Root: "r"}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.N != uint64(n) {
			t.Fatalf("event %d is number %d", n, e.N)
		}
		if n++; n == 20 {
			break
		}
		if _, err := l.Append(ctx, "r", "r", event("%d", n)); err != nil {
			t.Fatal(err)
		}
	}
}

func TestPositionsStayOverRestart(t *testing.T) {
	at := embedded(t)
	l, closeAll := at.openBroker(t, Options{})
	ctx := soon(t)
	before, err := l.Append(ctx, "r", "r", event("a"), event("b"))
	if err != nil {
		t.Fatal(err)
	}
	closeAll()
	l = at.open(t, Options{})
	after, err := l.Append(ctx, "r", "r", event("c"))
	if err != nil {
		t.Fatal(err)
	}
	got := first(t, l.Follow(ctx, Filter{}, 0), 3)
	for i, want := range append(before, after...) {
		if got[i].Position != want || got[i].N != uint64(i) {
			t.Errorf("event %d: %+v, want position %d", i, got[i], want)
		}
	}
}

func TestWriteIsChunked(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx := soon(t)
	w, err := l.Writer("r", "r", 1)
	if err != nil {
		t.Fatal(err)
	}
	const n = 20_000
	for i := range n {
		if err := w.write(ctx, event("%d %s", i, strings.Repeat("x", 300))); err != nil {
			t.Fatal(err)
		}
	}
	if err := w.Flush(ctx); err != nil {
		t.Fatal(err)
	}
	stats, err := l.Stats(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if stats.Chunks > n/10 || stats.Bytes < n*300 || stats.Runs != 1 {
		t.Errorf("%+v", stats)
	}
	for i, e := range first(t, l.Follow(ctx, Filter{}, 0), n) {
		if e.N != uint64(i) || !strings.HasPrefix(string(e.Data), fmt.Sprintf(`"%d x`, i)) {
			t.Fatalf("event %d is %.20s, number %d", i, e.Data, e.N)
		}
	}
}

func TestWriteIsFlushedByItself(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx := soon(t)
	w, err := l.Writer("r", "r", 0)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.write(ctx, event("0")); err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, err := range l.Follow(ctx, Filter{}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if n++; n == 4 {
			break
		}
		if err := w.write(ctx, event("%d", n)); err != nil {
			t.Fatal(err)
		}
	}
}

func staleWriterIsFenced(t *testing.T, at *place) {
	l := at.open(t, Options{})
	ctx := soon(t)
	writer := func(fence uint64) *Writer {
		w, err := l.Writer("r", "r", fence)
		if err != nil {
			t.Fatal(err)
		}
		return w
	}
	old, young := writer(3), writer(8)
	for i, step := range []struct {
		w    *Writer
		want error
	}{
		{old, nil}, {writer(0), nil}, {old, nil}, // what has no fence fences nobody
		{young, nil}, {young, nil}, {writer(0), nil},
		{old, ErrFenced}, {old, ErrFenced}, {writer(7), ErrFenced}, // also behind one without
		{young, nil}, {writer(8), nil},
	} {
		if _, err := step.w.Append(ctx, event("%d", i)); !errors.Is(err, step.want) {
			t.Errorf("step %d: got %v, want %v", i, err, step.want)
		}
	}
	if err := old.write(ctx, event("x")); !errors.Is(err, ErrFenced) {
		t.Errorf("Write: %v", err)
	}
	if err := old.Flush(ctx); !errors.Is(err, ErrFenced) {
		t.Errorf("Flush: %v", err)
	}
	if got := texts(first(t, l.Follow(ctx, Filter{}, 0), 8)); got != "0 1 2 3 4 5 9 10" {
		t.Errorf("the log holds %s", got)
	}
}

func TestHostileInput(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx := soon(t)
	for _, id := range []string{"", ".", "a.b", "*", ">", "a b", "a\n", "é", strings.Repeat("x", MaxID+1), "a/b", "$JS"} {
		if _, err := l.Append(ctx, id, "r", event("x")); err == nil {
			t.Errorf("root %q was taken", id)
		}
		if _, err := l.Append(ctx, "r", id, event("x")); err == nil {
			t.Errorf("run %q was taken", id)
		}
		if err := l.Publish("r", id, event("x")); err == nil {
			t.Errorf("a delta of run %q was taken", id)
		}
		if err := l.Purge(ctx, id, 1); err == nil {
			t.Errorf("root %q was purged", id)
		}
		if _, err := l.PutBlob(ctx, id, nil); err == nil {
			t.Errorf("a blob of root %q was taken", id)
		}
		if _, err := l.Blobs(ctx, id); err == nil {
			t.Errorf("the blobs of root %q were listed", id)
		}
		if err := l.RemoveBlobs(ctx, id); err == nil {
			t.Errorf("the blobs of root %q were removed", id)
		}
		if id == "" {
			continue
		}
		for _, filter := range []Filter{{Root: id}, {Run: id}} {
			for _, err := range l.Follow(ctx, filter, 0) {
				if err == nil {
					t.Errorf("filter %+v was taken", filter)
				}
				break
			}
		}
	}
	for _, data := range []string{"", "{", "a b", "1 2"} {
		if _, err := l.Append(ctx, "r", "r", json.RawMessage(data)); err == nil {
			t.Errorf("event %q was taken", data)
		}
	}
	if _, err := l.Append(ctx, "r", "r", event("%s", strings.Repeat("x", MaxEvent))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large event: %v", err)
	}
	if err := l.Publish("r", "r", event("%s", strings.Repeat("x", MaxEvent))); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large delta: %v", err)
	}
	for _, ref := range []string{"", "r", "r/xyz", "../" + strings.Repeat("0", 64)} {
		if _, err := l.Blob(ctx, ref); err == nil {
			t.Errorf("blob %q was read", ref)
		}
	}
	// What is odd but JSON arrives as it is, on one line.
	if _, err := l.Append(ctx, "r", "r", json.RawMessage("{\n\"a\":\r\n [1,\n2]}"), json.RawMessage(`"\n"`)); err != nil {
		t.Fatal(err)
	}
	if got := first(t, l.Follow(ctx, Filter{}, 0), 2); string(got[0].Data) != `{"a":[1,2]}` || string(got[1].Data) != `"\n"` {
		t.Errorf("got %s and %s", got[0].Data, got[1].Data)
	}
}

func laggingFollowerLosesNothingAndBlocksNobody(t *testing.T, at *place) {
	l := at.open(t, Options{Queue: 4 << 10, Window: 8 << 10, Readers: 1})
	ctx := soon(t)
	const n = 2000
	seen := 0
	if _, err := l.Append(ctx, "r", "r", event("first")); err != nil {
		t.Fatal(err)
	}
	for e, err := range l.Follow(ctx, Filter{Root: "r"}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.N != uint64(seen) {
			t.Fatalf("event %d is number %d", seen, e.N)
		}
		if seen++; seen == 1 {
			// It holds the first, and looks at nothing more while all the
			// others are appended.
			w, err := l.Writer("r", "r", 0)
			if err != nil {
				t.Fatal(err)
			}
			for i := range n {
				if err := w.write(ctx, event("%d %s", i, strings.Repeat("x", 100))); err != nil {
					t.Fatal(err)
				}
			}
			if err := w.Flush(ctx); err != nil {
				t.Fatal(err)
			}
			// Another reads past it.
			first(t, l.Follow(ctx, Filter{}, 0), n+1)
		}
		if seen == n+1 {
			break
		}
	}
}

func deltasAreLiveOnly(t *testing.T, at *place) {
	l := at.open(t, Options{})
	ctx := soon(t)
	if err := l.Publish("r", "r", event("nobody hears")); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Append(ctx, "r", "r", event("stored")); err != nil {
		t.Fatal(err)
	}
	var got []Event
	for e, err := range l.FollowLive(ctx, Filter{Root: "r"}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, e)
		switch len(got) {
		case 1:
			for _, d := range []struct{ root, text string }{{"other", "not ours"}, {"r", "delta"}} {
				if err := l.Publish(d.root, "r", event("%s", d.text)); err != nil {
					t.Fatal(err)
				}
			}
			continue
		case 2:
			if _, err := l.Append(ctx, "r", "r", event("finished")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		break
	}
	if texts(got) != "stored delta finished" || got[0].Live || !got[1].Live || got[1].Position != 0 || got[2].Live {
		t.Errorf("got %+v", got)
	}
	if got := texts(first(t, l.Follow(ctx, Filter{}, 0), 2)); got != "stored finished" {
		t.Errorf("stored are %s", got)
	}
}

func TestDeltasAreDroppedForWhoLags(t *testing.T) {
	l := embedded(t).open(t, Options{Queue: 8 << 10})
	ctx := soon(t)
	if _, err := l.Append(ctx, "r", "r", event("0")); err != nil {
		t.Fatal(err)
	}
	deltas, stored := 0, 0
	for e, err := range l.FollowLive(ctx, Filter{}, 0) {
		if err != nil {
			t.Fatal(err)
		}
		if e.Live {
			deltas++
			continue
		}
		if stored++; stored == 1 {
			for range 1000 {
				if err := l.Publish("r", "r", event("%s", strings.Repeat("x", 100))); err != nil {
					t.Fatal(err)
				}
			}
			if err := l.broker.Conn().Flush(); err != nil {
				t.Fatal(err)
			}
			if _, err := l.Append(ctx, "r", "r", event("finished block")); err != nil {
				t.Fatal(err)
			}
			continue
		}
		break
	}
	if deltas > 100 {
		t.Errorf("%d deltas were kept for a follower that lags", deltas)
	}
}

func blobs(t *testing.T, at *place) {
	l := at.open(t, Options{})
	ctx := soon(t)
	large := []byte(strings.Repeat("0123456789", 100_000))
	ref, err := l.PutBlob(ctx, "r", large)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := l.PutBlob(ctx, "r", large); err != nil || again != ref {
		t.Errorf("stored again: %s, %v", again, err)
	}
	empty, err := l.PutBlob(ctx, "r2", nil)
	if err != nil {
		t.Fatal(err)
	}
	if refs, err := l.Blobs(ctx, "r"); err != nil || len(refs) != 1 || refs[0] != ref {
		t.Errorf("the blobs of a tree: %v, %v", refs, err)
	}
	if got, err := l.Blob(ctx, ref); err != nil || string(got) != string(large) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
	for range 2 {
		if err := l.RemoveBlobs(ctx, "r"); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := l.Blob(ctx, ref); !errors.Is(err, ErrNotFound) {
		t.Errorf("a removed blob: %v", err)
	}
	if refs, err := l.Blobs(ctx, "r"); err != nil || len(refs) != 0 {
		t.Errorf("the blobs of a tree that has none: %v, %v", refs, err)
	}
	if got, err := l.Blob(ctx, empty); err != nil || len(got) != 0 {
		t.Errorf("the blob of another tree: %q, %v", got, err)
	}
	if _, err := l.PutBlob(ctx, "r", large); err != nil {
		t.Errorf("storing what was removed: %v", err)
	}
	if _, err := l.PutBlob(ctx, "r", make([]byte, MaxBlob+1)); !errors.Is(err, ErrTooLarge) {
		t.Errorf("a large blob: %v", err)
	}
}

// Who gives up reading a blob leaves nothing behind, as TestMain sees, wherever it was.
func TestBlobIsNotWaitedFor(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ref, err := l.PutBlob(soon(t), "r", []byte(strings.Repeat("0123456789", 50_000)))
	if err != nil {
		t.Fatal(err)
	}
	given, read := 0, 0
	for patience := 10 * time.Microsecond; read < 3; patience += patience / 20 {
		ctx, stop := context.WithTimeout(soon(t), patience)
		if _, err := l.Blob(ctx, ref); err == nil {
			read++
		} else if errors.Is(err, context.DeadlineExceeded) {
			given++
		} else {
			t.Errorf("after %v: %v", patience, err)
		}
		stop()
	}
	if given == 0 {
		t.Error("all were read")
	}
}

// What lacks a part, or has too much, is not taken for what was stored.
func TestBlobThatLacksAPart(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx := soon(t)
	ref, err := l.PutBlob(ctx, "r", []byte(strings.Repeat("0123456789", 50_000)))
	if err != nil {
		t.Fatal(err)
	}
	s, err := l.broker.JetStream().Stream(ctx, blobStream)
	if err != nil {
		t.Fatal(err)
	}
	part, err := s.GetMsg(ctx, 2)
	if err != nil || !strings.HasPrefix(part.Subject, "$O."+broker.Blobs+".C.") {
		t.Fatalf("message 2 is no part: %+v, %v", part, err)
	}
	if err := s.DeleteMsg(ctx, 2); err != nil {
		t.Fatal(err)
	}
	if _, err := l.Blob(ctx, ref); err == nil || !strings.Contains(err.Error(), "its content is not what was stored") {
		t.Errorf("it is read: %v", err)
	}
}

func TestGapIsAnError(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx := soon(t)
	var positions []Position
	for i := range 3 {
		p, err := l.Append(ctx, "r", "r", event("%d", i))
		if err != nil {
			t.Fatal(err)
		}
		positions = append(positions, p...)
	}
	for l.hub.position() < positions[2].seq() { // what it still has to hand out, followers get all the same
		runtime.Gosched()
	}
	if err := l.stream.DeleteMsg(ctx, positions[1].seq()); err != nil {
		t.Fatal(err)
	}
	var gap *GapError
	n := 0
	for _, err := range l.Follow(ctx, Filter{}, 0) {
		if n++; n == 2 && !errors.As(err, &gap) {
			t.Fatalf("got %v", err)
		}
	}
	if n != 2 || gap.Want != 1 || gap.Got != 2 || gap.Run != "r" {
		t.Errorf("%d results, %v", n, gap)
	}
	if got := texts(first(t, l.Follow(ctx, Filter{}, gap.Next), 1)); got != "2" {
		t.Errorf("behind the gap is %s", got)
	}
}

func TestForeignMessageInTheLogIsAnError(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx := soon(t)
	if _, err := l.broker.JetStream().Publish(ctx, broker.EventSubject+"r.r", []byte("2 of a newer version")); err != nil {
		t.Fatal(err)
	}
	for _, err := range l.Follow(ctx, Filter{}, 0) {
		if err == nil || !strings.Contains(err.Error(), "newer nestor") {
			t.Errorf("got %v", err)
		}
	}
	if _, err := l.Append(ctx, "r", "r", event("x")); err == nil || !strings.Contains(err.Error(), "newer nestor") {
		t.Errorf("appending behind it: %v", err)
	}
	if _, err := l.Append(ctx, "r", "other", event("x")); err != nil {
		t.Errorf("appending elsewhere: %v", err)
	}
}

func TestEndOfTheLog(t *testing.T) {
	at := embedded(t)
	b, err := broker.Open(soon(t), at.options)
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	l := New(b, Options{})
	ended := make(chan error)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() { ended <- l.Run(ctx) }()
	if _, err := l.Append(soon(t), "r", "r", event("x")); err != nil {
		t.Fatal(err)
	}
	for _, err := range l.Follow(soon(t), Filter{}, 0) {
		cancel()
		if err != nil {
			if !errors.Is(err, ErrClosed) {
				t.Errorf("following: %v", err)
			}
		}
	}
	if err := <-ended; err != nil {
		t.Errorf("Run: %v", err)
	}
	if _, err := l.Append(soon(t), "r", "r", event("x")); !errors.Is(err, ErrClosed) {
		t.Errorf("appending: %v", err)
	}
	if _, err := l.Stats(soon(t)); !errors.Is(err, ErrClosed) {
		t.Errorf("stats: %v", err)
	}
	// The cause of a context is what one gets.
	why := errors.New("because")
	ctx2, stop := context.WithCancelCause(context.Background())
	stop(why)
	l2 := New(b, Options{}) // never run
	if _, err := l2.Append(ctx2, "r", "r", event("x")); !errors.Is(err, why) {
		t.Errorf("got %v", err)
	}
	for _, err := range l2.Follow(ctx2, Filter{}, 0) {
		if !errors.Is(err, why) {
			t.Errorf("got %v", err)
		}
	}
}

func TestOneConsumerForManyFollowers(t *testing.T) {
	l := embedded(t).open(t, Options{})
	ctx, cancel := context.WithCancel(soon(t))
	defer cancel()
	const followers = 200
	got := make(chan string, followers)
	for i := range followers {
		go func() {
			for e, err := range l.Follow(ctx, Filter{Root: fmt.Sprint("r", i%2)}, 0) {
				if err != nil {
					return
				}
				got <- e.Root
			}
		}()
	}
	for i := range 2 {
		if _, err := l.Append(ctx, fmt.Sprint("r", i), "r", event("x")); err != nil {
			t.Fatal(err)
		}
	}
	for range followers {
		<-got
	}
	consumers := 0
	for info := range l.stream.ListConsumers(ctx).Info() {
		if strings.HasPrefix(info.Name, "hub-") {
			consumers++
		}
	}
	if consumers != 1 {
		t.Errorf("%d consumers", consumers)
	}
}

func FuzzDecode(f *testing.F) {
	c := &chunk{root: "r", run: "r", n: 7, fence: 3, writer: "w", events: [][]byte{[]byte(`{}`), []byte(`"x"`)}}
	f.Add("event.r.r", c.encode())
	f.Add("event.r.r", []byte("1 0 0 w 4096\n"))
	f.Add("event.r.r", []byte("1 18446744073709551615 0 w 1\n\n"))
	f.Add("event.>.*", []byte("2"))
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, subject string, data []byte) {
		c, err := decode(subject, 5, data)
		if err != nil {
			return
		}
		if string(c.encode()) != string(data) {
			// Numbers may have been written in another way.
			again, err := decode(subject, 5, c.encode())
			if err != nil || again.n != c.n || len(again.events) != len(c.events) {
				t.Fatalf("%q became %q (%v)", data, c.encode(), err)
			}
		}
		for i := range c.events {
			if e := c.event(i); e.Position.seq() != 5 || e.Position > upTo(5) {
				t.Fatalf("%+v", e)
			}
		}
	})
}
