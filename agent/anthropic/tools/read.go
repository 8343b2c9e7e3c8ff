package tools

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/dfaf701a/nestor/claude"
)

const (
	maxLine   = 8_000    // bytes of one line that the model is told
	maxWhole  = 16 << 20 // bytes of a file that is held in memory
	maxCount  = 64 << 20 // bytes of a file whose lines are all counted
	maxImage  = 3_750_000
	maxPDF    = 20 << 20
	maxPages  = 100
	sniffSize = 8 << 10
)

type readInput struct {
	Path   string `json:"file_path"`
	Offset count  `json:"offset"`
	Limit  *count `json:"limit"`
	Pages  string `json:"pages"`
	Large  bool   `json:"allow_large"`
}

func (s *Set) readTool() Tool {
	t := Tool{
		Name: "Read",
		Description: "Reads a file: text with line numbers, as LINE<tab>TEXT, images (PNG, JPEG, GIF, WebP), PDFs and " +
			"Jupyter notebooks. A long text comes in parts: read on with offset. Folders are listed with Glob.",
		Schema: json.RawMessage(`{"type":"object","properties":{
"file_path":{"type":"string","description":"The absolute path to the file to read"},
"offset":{"type":"integer","minimum":0,"description":"The line to start at. Only for files that are too long to read at once"},
"limit":{"type":"integer","exclusiveMinimum":0,"description":"How many lines to read. Only for files that are too long to read at once"},
"pages":{"type":"string","description":"Not available here: a PDF is read as a whole"},
"allow_large":{"type":"boolean","description":"Has no effect here: what does not fit is read with offset and limit"}
},"required":["file_path"],"additionalProperties":false}`),
		ReadOnly: true,
	}
	t.Access = func(input json.RawMessage) (Access, error) {
		in, err := decode[readInput](t, input)
		if err != nil {
			return Access{}, err
		}
		return s.access(in.Path, "file_path", input, false)
	}
	t.Run = func(ctx context.Context, input json.RawMessage) (Result, error) {
		in, err := decode[readInput](t, input)
		if err != nil {
			return Result{}, err
		}
		if in.Limit != nil && *in.Limit <= 0 {
			return Result{}, inputError(t.Name, []string{"The parameter `limit` must be greater than 0"})
		}
		return s.read(ctx, in)
	}
	return t
}

func (s *Set) read(ctx context.Context, in readInput) (Result, error) {
	p, err := s.inside(in.Path, false)
	if err != nil {
		return Result{}, err
	}
	f, info, err := s.open(p)
	if err != nil {
		return Result{}, s.explain(err, in.Path)
	}
	defer f.Close()

	head := make([]byte, sniffSize)
	n, err := io.ReadFull(f, head)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return Result{}, err
	}
	head = head[:n]
	file := &opened{File: f, info: info, path: p.path, whole: io.MultiReader(bytes.NewReader(head), f)}
	switch ext := strings.ToLower(filepath.Ext(p.path)); {
	case bytes.HasPrefix(head, []byte("%PDF-")):
		return s.readPDF(file, in)
	case isImage(head):
		return s.readImage(file)
	case ext == ".ipynb" && in.Offset == 0 && in.Limit == nil:
		return s.readNotebook(file)
	case bytes.IndexByte(head, 0) >= 0:
		return Result{}, tell("This tool cannot read binary files. The file appears to be a binary %s file. "+
			"Use a shell command or script that can read the format.", cmp.Or(ext, "nameless"))
	}
	return s.readText(ctx, file, in)
}

// opened is a file that is being read.
type opened struct {
	*os.File
	info  fs.FileInfo
	path  string
	whole io.Reader // from the beginning
}

// all returns the whole content, if it is no more than most bytes.
func (f *opened) all(most int64) ([]byte, error) {
	data, err := io.ReadAll(io.LimitReader(f.whole, most+1))
	if err == nil && int64(len(data)) > most {
		err = tell("File content (%s) exceeds maximum allowed size (%s). Use a shell command to make it smaller, or read parts of it.",
			sizeText(max(f.info.Size(), int64(len(data)))), sizeText(most))
	}
	return data, err
}

func (s *Set) readText(ctx context.Context, f *opened, in readInput) (Result, error) {
	page := lines{first: max(1, int(in.Offset)), room: s.opts.MaxResult - 300}
	if in.Limit != nil {
		page.most = int(*in.Limit)
	}
	page.countAll = f.info.Size() <= maxCount
	var sum hash.Hash
	source := f.whole
	if f.info.Size() <= maxWhole {
		sum = sha256.New()
		source = io.TeeReader(source, sum)
	}
	// No more room than the file needs: most are small.
	r := bufio.NewReaderSize(source, int(min(f.info.Size()+512, 64<<10)))
	if err := page.read(ctx, r); err != nil {
		return Result{}, err
	}
	st := stampOf(f.info)
	if sum != nil && page.total > 0 {
		st.sum = string(sum.Sum(nil))
	}
	s.remember(f.path, st)

	text := page.numbered.String()
	switch {
	case page.shown == 0 && page.total > 0 && page.first > page.total:
		text = fmt.Sprintf("<system-reminder>Warning: the file exists but is shorter than the provided offset (%d). "+
			"The file has %d lines.</system-reminder>", page.first, page.total)
	case page.empty:
		text = "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
	case page.cut:
		of := ""
		if page.total > 0 {
			of = fmt.Sprintf(" of %d", page.total)
		}
		next := page.first + page.shown
		text += fmt.Sprintf("\n\n<system-reminder>Lines %d to %d%s are shown, as many as fit. Read on with offset: %d, or use Grep to find "+
			"what you need.</system-reminder>", page.first, next-1, of, next)
	}
	return Result{Text: text, Data: map[string]any{"type": "text", "file": map[string]any{
		"filePath": f.path, "content": page.plain.String(), "numLines": max(page.shown, 0),
		"startLine": page.first, "totalLines": page.total,
	}}}, nil
}

// lines reads a part of a text, line by line.
type lines struct {
	first, most, room int  // from 1; zero most means all; bytes
	countAll          bool // read to the end, to know total

	numbered, plain strings.Builder
	shown           int  // lines in them
	total           int  // zero if they were not counted
	cut             bool // there was no room for more
	empty           bool // there is nothing in the file
}

func (l *lines) read(ctx context.Context, r *bufio.Reader) error {
	var line []byte // as much of it as is told
	length := 0     // of the whole line
	number, seen := 1, 0
	for {
		part, err := r.ReadSlice('\n')
		if seen == 0 {
			part = bytes.TrimPrefix(part, []byte("\xef\xbb\xbf"))
		}
		seen += len(part)
		line = append(line, part[:min(len(part), maxLine+2-min(len(line), maxLine+2))]...)
		length += len(part)
		if errors.Is(err, bufio.ErrBufferFull) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			continue
		}
		if err != nil && err != io.EOF {
			return err
		}
		if !l.add(number, line, length) && !l.countAll {
			return nil
		}
		if err == io.EOF {
			l.total, l.empty = number, seen == 0
			return nil
		}
		if number++; number%1000 == 0 && ctx.Err() != nil {
			return context.Cause(ctx)
		}
		line, length = line[:0], 0
	}
}

// add takes a line in, if it is one that was asked for, and tells whether more
// can follow.
func (l *lines) add(number int, line []byte, length int) bool {
	if number < l.first {
		return true
	}
	if l.cut || l.most > 0 && l.shown == l.most {
		return false
	}
	text := strings.TrimSuffix(strings.TrimSuffix(string(line), "\n"), "\r")
	if length > maxLine+2 {
		text = fmt.Sprintf("%s [line cut: it has %d bytes]", cutEnd(text, maxLine), length)
	}
	text = strings.ToValidUTF8(text, "\uFFFD")
	entry := fmt.Sprintf("%d\t%s", number, text)
	if l.shown > 0 {
		entry, text = "\n"+entry, "\n"+text
	}
	if l.shown > 0 && l.numbered.Len()+len(entry) > l.room {
		l.cut = true
		return false
	}
	if len(entry) > l.room {
		entry = cutEnd(entry, l.room)
		l.cut = true
	}
	l.numbered.WriteString(entry)
	l.plain.WriteString(text)
	l.shown++
	return true
}

func isImage(head []byte) bool {
	_, err := claude.NewImage(head)
	return err == nil
}

func (s *Set) readImage(f *opened) (Result, error) {
	data, err := f.all(maxImage)
	if err != nil {
		return Result{}, err
	}
	image, err := claude.NewImage(data)
	if err != nil {
		return Result{}, err
	}
	s.remember(f.path, stampOf(f.info))
	return Result{Blocks: []claude.Block{image}, Data: map[string]any{"type": "image", "file": map[string]any{
		"type": image.Source.MediaType, "originalSize": len(data),
	}}}, nil
}

func (s *Set) readPDF(f *opened, in readInput) (Result, error) {
	if in.Pages != "" {
		return Result{}, tell("Pages of a PDF cannot be chosen here: leave `pages` out to read all of it, or extract them with a shell command.")
	}
	data, err := f.all(maxPDF)
	if err != nil {
		return Result{}, err
	}
	if n := pdfPages(data); n > maxPages {
		return Result{}, tell("This PDF has %d pages, and no more than %d can be read. Extract some of them with a shell command.", n, maxPages)
	}
	s.remember(f.path, stampOf(f.info))
	return Result{
		Text:   fmt.Sprintf("PDF file read: %s (%s)", f.path, sizeText(int64(len(data)))),
		Blocks: []claude.Block{claude.NewPDF(data)},
		Data:   map[string]any{"type": "pdf", "file": map[string]any{"filePath": f.path, "originalSize": len(data)}},
	}, nil
}

// pdfPages counts the pages that can be seen without unpacking anything.
func pdfPages(data []byte) int {
	n := 0
	for {
		i := bytes.Index(data, []byte("/Type"))
		if i < 0 {
			return n
		}
		data = bytes.TrimLeft(data[i+len("/Type"):], " \r\n\t")
		if after, ok := bytes.CutPrefix(data, []byte("/Page")); ok && (len(after) == 0 || after[0] != 's') {
			n++
		}
	}
}

// stamp tells one state of a file from another.
type stamp struct {
	time time.Time
	size int64
	sum  string // SHA-256 of the content; empty if it is not known
}

func stampOf(info fs.FileInfo) stamp { return stamp{time: info.ModTime(), size: info.Size()} }

func (s *Set) remember(path string, st stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen[path] = st
}

// errStale is for a file that somebody else changed since it was read.
var errStale = tell("File has been modified since read, either by the user or by a linter. Read it again before attempting to write it.")

// checkSeen tells whether the file at path was read and is what it was then.
// Nil data means that the content is not known.
func (s *Set) checkSeen(path string, info fs.FileInfo, data []byte) error {
	s.mu.Lock()
	st, ok := s.seen[path]
	s.mu.Unlock()
	if !ok {
		return tell("File has not been read yet. Read it first before writing to it.")
	}
	same := st.size == info.Size() && st.time.Equal(info.ModTime())
	if st.sum != "" && data != nil {
		same = st.sum == sumOf(data)
	}
	if !same {
		return errStale
	}
	return nil
}

func sumOf(data []byte) string {
	sum := sha256.Sum256(data)
	return string(sum[:])
}
