package proxy

import (
	"io"
	"net"
	"sync/atomic"
)

// counted is a connection whose bytes are counted.
type counted struct {
	net.Conn
	moved       func() // called when bytes have; nil means nobody
	read, wrote atomic.Int64
}

func newCounted(conn net.Conn, moved func()) *counted {
	if moved == nil {
		moved = func() {}
	}
	return &counted{Conn: conn, moved: moved}
}

func (c *counted) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.read.Add(int64(n))
	c.moved()
	return n, err
}

func (c *counted) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.wrote.Add(int64(n))
	c.moved()
	return n, err
}

// closeWrite says that nothing more is written, and leaves the other direction as
// it is.
func (c *counted) closeWrite() {
	if half, ok := c.Conn.(interface{ CloseWrite() error }); ok {
		half.CloseWrite()
	}
}

// dialled is a connection of [Proxy.Dial].
type dialled struct {
	*counted
	close func() error // reports it, once
}

func (d *dialled) Close() error { return d.close() }

// pour copies until from has no more, which to is told, or one of them fails.
func pour(to *counted, from io.Reader) error {
	_, err := io.Copy(onlyWriter{to}, onlyReader{from})
	if err == nil {
		to.closeWrite()
	}
	return err
}

// onlyWriter and onlyReader keep io.Copy from going around what counts.
type (
	onlyWriter struct{ io.Writer }
	onlyReader struct{ io.Reader }
)
