// A program with the driver and nothing else, for its size.
package main

import (
	"database/sql"

	_ "modernc.org/sqlite"
)

func main() {
	db, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE VIRTUAL TABLE t USING fts5(a)"); err != nil {
		panic(err)
	}
}
