package tools

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
)

// maxReport bounds one line of what ripgrep reports: a file's longest, quoted.
const maxReport = 4 * maxSearched

// searchRipgrep is the search with ripgrep. It is handed the files open: it
// never opens a path that somebody else could have changed meanwhile.
func (s *Set) searchRipgrep(ctx context.Context, files []candidate, q query) ([]found, error) {
	args := []string{"--json", "--no-config", "--text", "--no-mmap", "--encoding", "none", "--color", "never"}
	if q.multiline {
		args = append(args, "--multiline", "--multiline-dotall")
	}
	if q.first {
		args = append(args, "--max-count", "1")
	}
	if q.before > 0 || q.after > 0 {
		args = append(args, "-B", fmt.Sprint(q.before), "-A", fmt.Sprint(q.after))
	}
	args = append(args, "--regexp", q.text, "--")
	cmd := s.opts.Command(s.ripgrep, args...)
	cmd.Dir, cmd.Env = s.folders[0].path, s.environ(s.folders[0].path)
	index := map[string]int{}
	for i, c := range files {
		name := fmt.Sprint(descriptorPath, 3+len(cmd.ExtraFiles))
		index[name] = i
		cmd.ExtraFiles = append(cmd.ExtraFiles, c.file)
		cmd.Args = append(cmd.Args, name)
	}
	setAttributes(cmd)
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer r.Close()
	cmd.Stdout = w
	err = cmd.Start()
	w.Close()
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { killGroup(cmd.Process) })
	defer stop()

	hits := make([]found, len(files))
	err = readReports(r, func(path string, lines []line) {
		i, ok := index[path]
		if !ok {
			return
		}
		f := &hits[i]
		f.path, f.time = files[i].path, files[i].time
		f.lines = append(f.lines, lines...)
		for _, l := range lines {
			if l.match {
				f.count++
			}
		}
	})
	if err != nil {
		killGroup(cmd.Process)
	}
	// One is what it exits with when nothing was found.
	if ended := cmd.Wait(); err == nil && ended != nil && cmd.ProcessState.ExitCode() != 1 {
		err = ended
	}
	if err != nil {
		return nil, fmt.Errorf("running ripgrep: %w", err)
	}
	list := hits[:0]
	for _, f := range hits {
		if f.count > 0 {
			if q.first {
				f.lines, f.count = f.lines[:1], 1
			}
			list = append(list, f)
		}
	}
	return list, nil
}

// report is a line of ripgrep's output.
type report struct {
	Type string `json:"type"`
	Data struct {
		Path   reportText `json:"path"`
		Lines  reportText `json:"lines"`
		Number int        `json:"line_number"`
		Parts  []struct {
			Start int `json:"start"`
			End   int `json:"end"`
		} `json:"submatches"`
	} `json:"data"`
}

// reportText is text, or bytes that are none.
type reportText struct {
	Text  string `json:"text"`
	Bytes []byte `json:"bytes"`
}

func (t reportText) raw() []byte {
	if t.Bytes != nil {
		return t.Bytes
	}
	return []byte(t.Text)
}

// readReports hands on the lines that ripgrep reports, in order.
func readReports(from io.Reader, hand func(path string, lines []line)) error {
	r := bufio.NewReaderSize(from, 64<<10)
	for {
		data, err := readReport(r)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		var rep report
		if err := json.Unmarshal(data, &rep); err != nil {
			return err
		}
		if rep.Type == "match" || rep.Type == "context" {
			hand(string(rep.Data.Path.raw()), rep.lines())
		}
	}
}

func readReport(r *bufio.Reader) ([]byte, error) {
	var data []byte
	for {
		part, err := r.ReadSlice('\n')
		if len(data)+len(part) > maxReport {
			return nil, errors.New("a report is too long")
		}
		data = append(data, part...)
		if !errors.Is(err, bufio.ErrBufferFull) {
			if err == io.EOF && len(data) > 0 {
				err = io.ErrUnexpectedEOF
			}
			return data, err
		}
	}
}

// lines returns the lines of a report, of which a match over several has more
// than one.
func (rep *report) lines() (list []line) {
	data := rep.Data.Lines.raw()
	pos := 0
	for i, text := range bytes.Split(bytes.TrimSuffix(data, []byte("\n")), []byte("\n")) {
		l := line{number: rep.Data.Number + i, text: held(text), match: rep.Type == "match"}
		for _, m := range rep.Data.Parts {
			from, to := max(m.Start, pos), min(m.End, pos+len(text))
			if from < to {
				l.parts = append(l.parts, strings.TrimSuffix(held(data[from:to]), "\n"))
			}
		}
		list = append(list, l)
		pos += len(text) + 1
	}
	return list
}
