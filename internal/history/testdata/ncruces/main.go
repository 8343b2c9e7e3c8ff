// A program with the driver and nothing else, for its size.
package main

import (
	"github.com/ncruces/go-sqlite3/driver"
	"github.com/ncruces/go-sqlite3/ext/fts5"
)

func main() {
	db, err := driver.Open("file::memory:", fts5.Register)
	if err != nil {
		panic(err)
	}
	defer db.Close()
	if _, err := db.Exec("CREATE VIRTUAL TABLE t USING fts5(a)"); err != nil {
		panic(err)
	}
}
