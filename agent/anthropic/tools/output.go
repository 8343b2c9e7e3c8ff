package tools

import (
	"fmt"
	"os"
	"strings"
	"sync"
)

// maxSpool is how much of the output of one command is kept on disk.
const maxSpool = 64 << 20

// output takes what a command says: the beginning and the end in memory, all of
// it on disk once it is more than a result may be.
type output struct {
	set  *Set
	id   string
	most int // bytes of a result

	read *os.File      // our end of the command's pipe
	done chan struct{} // closed by drain, when nobody can write any more

	mu   sync.Mutex // guards what follows
	head []byte     // at most most
	tail []byte     // the end of what is behind head, at most 2*most
	size int64
	file *os.File // nil until it is needed
	path string
	kept int64 // bytes in file
	err  error // why not all of it is on disk
}

// newOutput returns an output, and the pipe that a command is to write to. The
// caller closes it once the command has it, and runs drain.
func (s *Set) newOutput(id string) (*output, *os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	return &output{set: s, id: id, most: s.opts.MaxResult, read: r, done: make(chan struct{})}, w, nil
}

// drain reads until the pipe ends or is closed. A flood is read on, and thrown
// away, so that the command does not hang.
func (o *output) drain() {
	defer close(o.done)
	buf := make([]byte, 64<<10)
	for {
		n, err := o.read.Read(buf)
		o.take(buf[:n])
		if err != nil {
			break
		}
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file != nil {
		o.file.Close()
	}
}

func (o *output) take(data []byte) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.size += int64(len(data))
	if o.file == nil && o.err == nil && o.size > int64(o.most) {
		o.spill()
	}
	o.store(data)
	room := min(len(data), o.most-len(o.head))
	o.head = append(o.head, data[:room]...)
	data = data[room:]
	if len(data) > o.most {
		data = data[len(data)-o.most:]
	}
	if o.tail = append(o.tail, data...); len(o.tail) > 2*o.most {
		o.tail = append(o.tail[:0], o.tail[len(o.tail)-o.most:]...)
	}
}

// spill begins to write to disk, with what there was so far.
func (o *output) spill() {
	if o.file, o.path, o.err = o.set.create(o.id, ".output"); o.err == nil {
		o.store(o.head)
	}
}

func (o *output) store(data []byte) {
	if o.file == nil || o.err != nil {
		return
	}
	data = data[:min(int64(len(data)), maxSpool-o.kept)]
	n, err := o.file.Write(data)
	o.kept += int64(n)
	o.err = err
}

// onDisk makes sure that there is a file, and returns its path.
func (o *output) onDisk() (string, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.file == nil && o.err == nil {
		o.spill()
	}
	return o.path, o.err
}

// text returns what the model is told, of at most most bytes: without empty
// lines at the beginning and blanks at the end, as the CLI has it.
func (o *output) text(most int) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	all := string(o.head) + string(o.tail)
	if o.size == int64(len(all)) && len(all) <= most {
		return trim(all)
	}
	where := "Full output saved to: " + o.path
	switch {
	case o.err != nil && o.path == "":
		where = fmt.Sprintf("The rest is lost: %v", o.err)
	case o.err != nil || o.kept < o.size:
		where = fmt.Sprintf("The first %s saved to: %s", sizeText(o.kept), o.path)
	}
	head, tail := all, all
	if o.size != int64(len(all)) {
		head, tail = string(o.head), string(o.tail)
	}
	return abridge(strings.ToValidUTF8(head, "\uFFFD"), strings.ToValidUTF8(tail, "\uFFFD"), o.size, where, most)
}

// trim takes away empty lines at the beginning, and all blanks at the end.
func trim(text string) string {
	for {
		first, rest, ok := strings.Cut(text, "\n")
		if !ok || strings.TrimSpace(first) != "" {
			break
		}
		text = rest
	}
	return strings.ToValidUTF8(strings.TrimRight(text, " \t\r\n"), "\uFFFD")
}

// close ends drain, whoever still holds the pipe.
func (o *output) close() {
	o.read.Close()
	<-o.done
}
