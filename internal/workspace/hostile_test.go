package workspace

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// archiveOf writes an archive as it likes: a list, if it is not nil, and entries.
func archiveOf(t testing.TB, l any, entries ...tar.Header) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	w := tar.NewWriter(zip)
	add := func(h tar.Header, content string) {
		t.Helper()
		if h.Typeflag == tar.TypeReg {
			h.Size = int64(len(content))
		}
		if err := w.WriteHeader(&h); err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(w, content); err != nil {
			t.Fatal(err)
		}
	}
	if l != nil {
		text, err := json.Marshal(l)
		if err != nil {
			t.Fatal(err)
		}
		add(tar.Header{Typeflag: tar.TypeReg, Name: listName}, string(text))
	}
	for _, h := range entries {
		content := ""
		if h.Typeflag == tar.TypeReg {
			h.Uname, content = "", h.Uname // where the test puts it
		}
		add(h, content)
	}
	if err := errors.Join(w.Close(), zip.Close()); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// file is an entry with content, and its line in the list.
func file(name, content string) (changed, tar.Header) {
	hash := sha256.Sum256([]byte(content))
	return changed{Path: name, After: fileState(hex.EncodeToString(hash[:]), false), Size: int64(len(content))},
		tar.Header{Typeflag: tar.TypeReg, Name: name, Uname: content}
}

func link(name, target string) (changed, tar.Header) {
	return changed{Path: name, After: state(linkPrefix + target)}, tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: target}
}

// one is an archive with one change.
func one(t testing.TB, ch changed, h tar.Header) []byte {
	t.Helper()
	return archiveOf(t, list{Version: listVersion, Changed: []changed{ch}}, h)
}

// announced is an archive that says how much it will hold, and holds nothing.
func announced(t testing.TB, name string, size int64) []byte {
	t.Helper()
	var b bytes.Buffer
	zip := gzip.NewWriter(&b)
	if err := tar.NewWriter(zip).WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: name, Size: size}); err != nil {
		t.Fatal(err)
	}
	if err := zip.Close(); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// zeros is what a bomb unpacks to.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// hostile returns archives that must not be applied, by name, with what is said.
func hostile(t testing.TB) map[string]struct {
	archive []byte
	want    string
} {
	t.Helper()
	type refused = struct {
		archive []byte
		want    string
	}
	all := map[string]refused{}
	for _, name := range []string{
		"../out", "..", "/etc/out", "a/../../out", "a/..", "./a", "a//b", "a/", "", ".", "a/./b",
		".git/hooks/post-checkout", "sub/.git", ".GIT/config", ".nestor/config.yaml", "d/.nestor/x",
		"a\x00b",
	} {
		ch, _ := file(name, "evil")
		_, h := file("x", "evil")
		all["path "+name] = refused{one(t, ch, h), "path "}
		all["removed "+name] = refused{archiveOf(t, list{Version: listVersion, Removed: []changed{ch}}), "path "}
	}
	for _, target := range []string{"/etc/passwd", "../out", "d/../../out", "", ".git/config", "d/..", "a/"} {
		ch, _ := link("link", target)
		_, h := link("link", "x")
		all["link to "+target] = refused{one(t, ch, h), "which is not inside"}
	}
	good, goodEntry := file("good", "good")
	other, otherEntry := file("other", "other")
	listed := func(changes ...changed) list { return list{Version: listVersion, Changed: changes} }
	inside, insideEntry := link("link", "d")
	below, belowEntry := file("link/evil", "evil")
	through, throughEntry := link("new", "out/passwd")
	lying := good
	lying.After = other.After
	long := good
	long.Size = 1 << 40
	negative := good
	negative.Size = -1
	device := tar.Header{Typeflag: tar.TypeChar, Name: "good", Devmajor: 1, Devminor: 3}
	hard := tar.Header{Typeflag: tar.TypeLink, Name: "good", Linkname: "../out"}
	neither := changed{Path: "good", After: folder}
	maps.Copy(all, map[string]refused{
		"nothing":                       {nil, "EOF"},
		"no gzip":                       {[]byte("hello, this is no archive at all"), "invalid header"},
		"no list":                       {archiveOf(t, nil, goodEntry), "its first entry is"},
		"list is no JSON":               {archiveOf(t, "x"), "cannot unmarshal"},
		"list of a newer Nestor":        {archiveOf(t, list{Version: 2}), "version 2"},
		"empty tar":                     {archiveOf(t, nil), "unexpected EOF"},
		"listed, not there":             {archiveOf(t, listed(good)), `"good": unexpected EOF`},
		"there, not listed":             {archiveOf(t, listed(good), goodEntry, otherEntry), `"other" is not in the list`},
		"another order":                 {archiveOf(t, listed(good, other), otherEntry, goodEntry), `"other" where the list says "good"`},
		"twice in the tar":              {archiveOf(t, listed(good, other), goodEntry, goodEntry), `"good" where the list says "other"`},
		"twice in the list":             {archiveOf(t, listed(good, good), goodEntry, goodEntry), "twice"},
		"removed twice":                 {archiveOf(t, list{Version: 1, Removed: []changed{good, good}}), "twice"},
		"changed and removed":           {archiveOf(t, list{Version: 1, Changed: []changed{good}, Removed: []changed{good}}, goodEntry), "both"},
		"below a link of its own":       {archiveOf(t, listed(inside, below), insideEntry, belowEntry), `is below "link"`},
		"through a link that leads out": {archiveOf(t, listed(through), throughEntry), "another link leads out"},
		"other content":                 {one(t, lying, goodEntry), "has other content"},
		"same size, other content":      {one(t, good, tar.Header{Typeflag: tar.TypeReg, Name: "good", Uname: "evil"}), "has other content"},
		"other size":                    {one(t, good, tar.Header{Typeflag: tar.TypeReg, Name: "good", Uname: "longer"}), "is not the file that the list says"},
		"device":                        {one(t, good, device), "is not the file that the list says"},
		"hard link":                     {one(t, good, hard), "is not the file that the list says"},
		"link for a file":               {one(t, good, tar.Header{Typeflag: tar.TypeSymlink, Name: "good", Linkname: "d"}), "is not the file"},
		"file for a link":               {one(t, inside, tar.Header{Typeflag: tar.TypeReg, Name: "link", Uname: "x"}), "is not the link"},
		"another link":                  {one(t, inside, tar.Header{Typeflag: tar.TypeSymlink, Name: "link", Linkname: "/etc"}), "is not the link"},
		"neither file nor link":         {one(t, neither, goodEntry), "neither file nor link"},
		"too large by the list":         {one(t, long, goodEntry), "more than 4294967296 bytes"},
		"negative":                      {one(t, negative, goodEntry), "size of -1"},
		"list without end":              {announced(t, listName, maxList+1), "its first entry is"},
		"cut off":                       {one(t, good, goodEntry)[:60], "unexpected EOF"},
	})
	return all
}

// place is a folder with something beside it, which must not change.
func place(t testing.TB) (dir string, outside func() tree) {
	t.Helper()
	top := newDir(t, tree{"out": "untouched", "passwd": "untouched", "dir/d/kept": "kept", "dir/out": "-> ..", "dir/.git/config": "kept"})
	return filepath.Join(top, "dir"), func() tree {
		tr := readTree(t, top)
		maps.DeleteFunc(tr, func(name, _ string) bool {
			return strings.HasPrefix(name, "dir/") && !holdsPrivate(name)
		})
		return tr
	}
}

func TestHostileArchivesChangeNothing(t *testing.T) {
	all := hostile(t)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		t.Run(name, func(t *testing.T) {
			for _, force := range []bool{false, true} {
				dir, outside := place(t)
				was, around := readTree(t, dir), outside()
				_, err := Apply(t.Context(), dir, bytes.NewReader(all[name].archive), ApplyOptions{Force: force})
				if err == nil || !strings.Contains(err.Error(), all[name].want) {
					t.Errorf("error %v, want one with %q", err, all[name].want)
				}
				if now := readTree(t, dir); !maps.Equal(now, was) {
					t.Errorf("it changed %q to %q", was, now)
				}
				if now := outside(); !maps.Equal(now, around) {
					t.Errorf("outside is %q", now)
				}
				if left, _ := filepath.Glob(filepath.Join(dir, ".nestor")); left != nil {
					t.Errorf("it left %q", left)
				}
			}
		})
	}
}

// What decompresses to more than all that is allowed ends there.
func TestBombIsBounded(t *testing.T) {
	r := &boundedReader{r: zeros{}, left: 100, err: &BoundError{What: "bytes", Max: 100, Where: "the archive"}}
	n, err := io.Copy(io.Discard, r)
	if _, ok := errors.AsType[*BoundError](err); n != 100 || !ok {
		t.Errorf("read %d bytes, %v", n, err)
	}
}

func TestApplyEndsWithItsContext(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	enough := errors.New("enough")
	cancel(enough)
	dir, _ := place(t)
	ch, h := file("good", "good")
	if _, err := Apply(ctx, dir, bytes.NewReader(one(t, ch, h)), ApplyOptions{}); !errors.Is(err, enough) {
		t.Errorf("Apply: %v", err)
	}
	if _, err := Take(ctx, dir, Options{}); !errors.Is(err, enough) {
		t.Errorf("Take: %v", err)
	}
	s := take(t, dir, Options{})
	tree{"good": "good"}.write(t, dir)
	if err := changesOf(t, s).Pack(ctx, io.Discard); !errors.Is(err, enough) {
		t.Errorf("Pack: %v", err)
	}
	if _, err := Apply(t.Context(), filepath.Join(dir, "none"), nil, ApplyOptions{}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a folder that is not there: %v", err)
	}
}

// Whatever an archive says, nothing outside and nothing private changes, and no
// link that it writes leads out.
func FuzzApply(f *testing.F) {
	plain := func(archive []byte) []byte {
		zip, err := gzip.NewReader(bytes.NewReader(archive))
		if err != nil {
			return archive
		}
		text, _ := io.ReadAll(io.LimitReader(zip, 1<<20))
		return text
	}
	for _, h := range hostile(f) {
		f.Add(plain(h.archive), false)
	}
	there := newDir(f, before)
	s := take(f, there, Options{})
	work(f, there)
	f.Add(plain(pack(f, changesOf(f, s))), true)
	ch, h := link("d/l", "../x")
	f.Add(plain(one(f, ch, h)), true)
	f.Fuzz(func(t *testing.T, archive []byte, force bool) {
		var b bytes.Buffer // so that the fuzzer need not know gzip
		zip := gzip.NewWriter(&b)
		zip.Write(archive)
		zip.Close()
		applyAnything(t, b.Bytes(), force)
	})
}

// The same for archives that are right in all but what they say.
func FuzzApplyPaths(f *testing.F) {
	f.Add("a/b", "good", "d/l", "../x", "d/kept", true)
	f.Add("out/x", "evil", "l", "out/passwd", "out", true)
	f.Add("d", "evil", "x/.git/y", "d/kept", "d/kept", false)
	f.Fuzz(func(t *testing.T, name, content, linkName, target, gone string, force bool) {
		l := list{Version: listVersion, Removed: []changed{{Path: gone}}}
		var entries []tar.Header
		ch, h := file(name, content)
		second, secondHeader := link(linkName, target)
		l.Changed, entries = []changed{ch, second}, []tar.Header{h, secondHeader}
		if linkName < name {
			slices.Reverse(l.Changed)
			slices.Reverse(entries)
		}
		for _, text := range []string{name, linkName, target} {
			if strings.Contains(text, "\x00") || text == "" {
				return // which no tar can say
			}
		}
		if strings.HasSuffix(name, "/") { // a folder, for package tar
			return
		}
		applyAnything(t, archiveOf(t, l, entries...), force)
	})
}

// applyAnything applies an archive and looks around.
func applyAnything(t *testing.T, archive []byte, force bool) {
	t.Helper()
	dir, outside := place(t)
	around, was := outside(), readTree(t, dir)
	done, err := Apply(t.Context(), dir, bytes.NewReader(archive), ApplyOptions{Force: force, MaxFiles: 100, MaxBytes: 1 << 20})
	if now := outside(); !maps.Equal(now, around) {
		t.Fatalf("outside is %q, was %q", now, around)
	}
	now := treeNames(t, dir)
	if err != nil && len(done.Written)+len(done.Modified)+len(done.Removed) == 0 && !slices.Equal(now, slices.Sorted(maps.Keys(was))) {
		t.Fatalf("%v; but there is %q", err, now)
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	for _, name := range slices.Concat(done.Written, done.Modified) {
		if target, err := root.Readlink(name); err == nil && !leadsInside(root, name, target, nil) {
			t.Fatalf("%q leads to %q", name, target)
		}
	}
}

// treeNames lists what a folder holds.
func treeNames(t testing.TB, dir string) []string {
	t.Helper()
	return slices.Sorted(maps.Keys(readTree(t, dir)))
}
