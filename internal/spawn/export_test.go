package spawn

import "github.com/google/jsonschema-go/jsonschema"

// InputSchemas makes the schemas of the tools' inputs of their types.
func InputSchemas() (map[string]*jsonschema.Schema, error) {
	all := map[string]*jsonschema.Schema{}
	for name, make := range map[string]func(*jsonschema.ForOptions) (*jsonschema.Schema, error){
		"spawn": jsonschema.For[spawnInput], "wait": jsonschema.For[waitInput], "send": jsonschema.For[sendInput],
		"inbox": jsonschema.For[inboxInput], "progress": jsonschema.For[progressInput], "ask_person": jsonschema.For[askInput],
	} {
		var err error
		if all[name], err = make(nil); err != nil {
			return nil, err
		}
	}
	return all, nil
}
