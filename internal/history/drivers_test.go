//go:build drivers

package history

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"
)

// drivers are those that were measured to choose one.
var drivers = []struct {
	name string
	open func(dsn string) (*sql.DB, error)
}{
	{"modernc", func(dsn string) (*sql.DB, error) { return sql.Open("sqlite", dsn) }},
	{"ncruces", func(dsn string) (*sql.DB, error) { return driver.Open(dsn, fts5.Register) }},
}

// driverEvents is how many events a driver writes, in transactions of 1,000.
const driverEvents = 100_000

// BenchmarkDrivers measures the drivers with the same statements in the same
// run: 100,000 events of 300 bytes written with a sync after each 1,000, a tenth
// of them indexed; a list of 200; a search; the first query of a file that is
// opened; and the size of a program that has nothing else in it.
//
//	go test -tags drivers ./internal/history -run '^$' -bench Drivers -benchtime 5x
//
// It has a tag of its own, for to compile the driver that we do not use takes a minute.
func BenchmarkDrivers(b *testing.B) {
	files := map[string]string{}
	for _, d := range drivers {
		b.Run("insert/"+d.name, func(b *testing.B) {
			for b.Loop() {
				path := filepath.Join(b.TempDir(), "history.db")
				db := openDriver(b, d.open, path)
				fill(b, db)
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(driverEvents*float64(b.N)/b.Elapsed().Seconds(), "events/s")
		})
		files[d.name] = filepath.Join(b.TempDir(), "history.db")
		db := openDriver(b, d.open, files[d.name])
		fill(b, db)
		if err := db.Close(); err != nil {
			b.Fatal(err)
		}
	}
	for _, d := range drivers {
		b.Run("open/"+d.name, func(b *testing.B) {
			for b.Loop() {
				db := openDriver(b, d.open, files[d.name])
				count(b, db, 1, "SELECT position FROM events WHERE position = ?", 7)
				if err := db.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
	for _, d := range drivers {
		b.Run("list/"+d.name, func(b *testing.B) {
			db := openDriver(b, d.open, files[d.name])
			defer db.Close()
			for b.Loop() {
				count(b, db, 200, "SELECT data FROM events WHERE run = ? ORDER BY position LIMIT 200", "run-7")
			}
		})
	}
	for _, d := range drivers {
		b.Run("search/"+d.name, func(b *testing.B) {
			db := openDriver(b, d.open, files[d.name])
			defer db.Close()
			for b.Loop() {
				count(b, db, 50, "SELECT e.data FROM texts JOIN events e ON e.position = texts.rowid WHERE texts MATCH ? ORDER BY texts.rowid DESC LIMIT 50", `"event" AND "long"`)
			}
		})
	}
	for _, d := range drivers {
		b.Run("size/"+d.name, func(b *testing.B) {
			program := filepath.Join(b.TempDir(), "program")
			for b.Loop() {
				if out, err := exec.Command("go", "build", "-o", program, "./testdata/"+d.name).CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
			info, err := os.Stat(program)
			if err != nil {
				b.Fatal(err)
			}
			b.ReportMetric(float64(info.Size()), "bytes")
		})
	}
}

func openDriver(b *testing.B, open func(dsn string) (*sql.DB, error), path string) *sql.DB {
	db, err := open("file:" + path + "?_pragma=busy_timeout(10000)&_pragma=journal_mode(WAL)&_pragma=synchronous(FULL)&_txlock=immediate")
	if err != nil {
		b.Fatal(err)
	}
	return db
}

func fill(b *testing.B, db *sql.DB) {
	ctx := context.Background()
	for _, s := range schema[0] {
		if _, err := db.ExecContext(ctx, s); err != nil {
			b.Fatal(err)
		}
	}
	data := strings.Repeat("words of an event that is long ", 10)[:300]
	for first := 1; first <= driverEvents; first += 1000 {
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			b.Fatal(err)
		}
		event, err := tx.PrepareContext(ctx, "INSERT INTO events (position, root, run, n, type, time, data) VALUES (?, ?, ?, ?, ?, ?, ?)")
		if err != nil {
			b.Fatal(err)
		}
		text, err := tx.PrepareContext(ctx, insertText)
		if err != nil {
			b.Fatal(err)
		}
		for p := first; p < first+1000; p++ {
			if _, err := event.ExecContext(ctx, p, fmt.Sprint("root-", p%50), fmt.Sprint("run-", p%500), p/500, "tool_complete", p, []byte(data)); err != nil {
				b.Fatal(err)
			}
			if p%10 > 0 {
				continue
			}
			if _, err := text.ExecContext(ctx, p, fmt.Sprint("word", p%997, " ", data)); err != nil {
				b.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			b.Fatal(err)
		}
	}
}

// count reads rows of one column and fails if they are not as many.
func count(b *testing.B, db *sql.DB, want int, query string, args ...any) {
	rows, err := db.QueryContext(context.Background(), query, args...)
	if err != nil {
		b.Fatal(err)
	}
	defer rows.Close()
	n := 0
	for rows.Next() {
		var data []byte
		if err := rows.Scan(&data); err != nil {
			b.Fatal(err)
		}
		n++
	}
	if err := rows.Err(); err != nil || n != want {
		b.Fatalf("%d rows, want %d: %v", n, want, err)
	}
}
