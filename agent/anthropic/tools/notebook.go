package tools

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/dfaf701a/nestor/claude"
)

// notebook is what a .ipynb file holds, format 4.
type notebook struct {
	Cells    []notebookCell `json:"cells"`
	Metadata struct {
		Language struct {
			Name string `json:"name"`
		} `json:"language_info"`
	} `json:"metadata"`
}

type notebookCell struct {
	ID      string           `json:"id"`
	Type    string           `json:"cell_type"`
	Source  notebookText     `json:"source"`
	Outputs []notebookOutput `json:"outputs"`
}

type notebookOutput struct {
	Type      string                     `json:"output_type"`
	Text      notebookText               `json:"text"`
	Data      map[string]json.RawMessage `json:"data"`
	Name      string                     `json:"ename"`
	Value     string                     `json:"evalue"`
	Traceback []string                   `json:"traceback"`
}

// notebookText is a string, or a list of them.
type notebookText string

// UnmarshalJSON takes both, and anything else for nothing.
func (t *notebookText) UnmarshalJSON(data []byte) error {
	var one string
	var many []string
	if json.Unmarshal(data, &one) == nil {
		*t = notebookText(one)
	} else if json.Unmarshal(data, &many) == nil {
		*t = notebookText(strings.Join(many, ""))
	}
	return nil
}

const (
	maxImages     = 20    // pictures of a notebook that the model is shown
	maxCellOutput = 5_000 // bytes of one output
)

func (s *Set) readNotebook(f *opened) (Result, error) {
	data, err := f.all(maxWhole)
	if err != nil {
		return Result{}, err
	}
	result, err := showNotebook(data)
	if err != nil {
		return Result{}, tell("File is not a Jupyter notebook: %v. Read it as text with offset: 1.", err)
	}
	st := stampOf(f.info)
	st.sum = sumOf(data)
	s.remember(f.path, st)
	if result.Text, err = s.Bound("notebook", result.Text); err != nil {
		return Result{}, err
	}
	return result, nil
}

// showNotebook returns the cells and their outputs as the CLI shows them, but
// with the pictures behind the text.
func showNotebook(data []byte) (Result, error) {
	var book notebook
	if err := json.Unmarshal(data, &book); err != nil {
		return Result{}, err
	}
	var parts []string
	var blocks []claude.Block
	room := maxImage * 4 // of all pictures
	for i, cell := range book.Cells {
		id := cell.ID
		if id == "" {
			id = fmt.Sprintf("cell-%d", i)
		}
		kind := ""
		if cell.Type != "code" {
			kind = "<cell_type>" + cell.Type + "</cell_type>"
		} else if lang := book.Metadata.Language.Name; lang != "" && lang != "python" {
			kind = "<language>" + lang + "</language>"
		}
		parts = append(parts, fmt.Sprintf("<cell id=%q>%s%s</cell id=%q>", id, kind, cell.Source, id))
		for _, out := range cell.Outputs {
			if text := out.text(); text != "" {
				parts = append(parts, "\n"+text)
			}
			for _, media := range []string{"image/png", "image/jpeg"} {
				image := out.image(media)
				if image == nil {
					continue
				}
				if len(blocks) == maxImages || len(image.Source.Data) > room {
					parts = append(parts, "[picture left out: there are too many]")
					continue
				}
				room -= len(image.Source.Data)
				blocks = append(blocks, image)
				parts = append(parts, fmt.Sprintf("[picture %d]", len(blocks)))
			}
		}
	}
	text := strings.ToValidUTF8(strings.Join(parts, "\n"), "\uFFFD")
	if text == "" {
		text = "<system-reminder>Warning: the file exists but the contents are empty.</system-reminder>"
	}
	return Result{Text: text, Blocks: blocks}, nil
}

func (o *notebookOutput) text() string {
	var text string
	switch o.Type {
	case "stream":
		text = string(o.Text)
	case "error":
		text = strings.Join(append([]string{o.Name + ": " + o.Value}, o.Traceback...), "\n")
	default:
		var plain notebookText
		if raw, ok := o.Data["text/plain"]; ok {
			plain.UnmarshalJSON(raw)
		}
		text = string(plain)
	}
	if len(text) > maxCellOutput {
		return cutEnd(text, maxCellOutput) + fmt.Sprintf("\n[output cut: it has %d bytes]", len(text))
	}
	return text
}

// image returns the picture of that type, or nil if there is none that the API
// takes.
func (o *notebookOutput) image(media string) *claude.Image {
	raw, ok := o.Data[media]
	if !ok {
		return nil
	}
	var text notebookText
	text.UnmarshalJSON(raw)
	data, err := base64.StdEncoding.DecodeString(strings.NewReplacer("\n", "", "\r", "").Replace(string(text)))
	if err != nil || len(data) > maxImage {
		return nil
	}
	image, err := claude.NewImage(data)
	if err != nil {
		return nil
	}
	return image
}
