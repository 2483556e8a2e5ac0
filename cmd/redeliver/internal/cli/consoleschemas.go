package cli

import (
	"bytes"
	"cmp"
	"context"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/avro"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
	_ "google.golang.org/protobuf/types/known/anypb" // well-known types, which a registry does not have
	_ "google.golang.org/protobuf/types/known/durationpb"
	_ "google.golang.org/protobuf/types/known/emptypb"
	_ "google.golang.org/protobuf/types/known/fieldmaskpb"
	_ "google.golang.org/protobuf/types/known/structpb"
	_ "google.golang.org/protobuf/types/known/timestamppb"
	_ "google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/redeliver/redeliver/console"
	"github.com/redeliver/redeliver/deadletter"
)

const (
	// maxSchema is the maximum size of an answer of the registry in bytes.
	maxSchema = 1 << 20
	// maxSchemas bounds the schemas that are kept, and maxReferences bounds the references followed for one schema.
	maxSchemas    = 1000
	maxReferences = 100
)

// schemaRegistry decodes bodies in the wire format of Confluent's schema registry: a zero byte, the id of the schema in
// four bytes, and the data.
type schemaRegistry struct {
	base   *url.URL // without user and password
	user   *url.Userinfo
	client *http.Client

	mu       sync.Mutex
	decoders map[uint32]bodyDecoder
}

// bodyDecoder converts the data of one schema to JSON.
type bodyDecoder struct {
	format string // "Avro" or "Protobuf" or "JSON"
	decode func(data []byte) (text []byte, typeName string, err error)
}

// envRegistry names the variable with the registry's URL.
const envRegistry = "REDELIVER_SCHEMA_REGISTRY"

// openRegistry returns the decoder of the schema registry at an address, or nil without an address.
func openRegistry(text string) (decode console.Decoder, warnings []string, err error) {
	if text == "" {
		return nil, nil, nil
	}
	base, err := url.Parse(text)
	if err != nil || base.Host == "" || base.Scheme != "http" && base.Scheme != "https" {
		return nil, nil, usagef("the address of the schema registry must begin with http:// or https://")
	}
	r := &schemaRegistry{base: base, user: base.User, decoders: make(map[uint32]bodyDecoder)}
	if base.User != nil {
		warnings = plainHTTP(text)
	}
	base.User = nil
	r.client = &http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	return r.decode, warnings, nil
}

// decode is a [console.Decoder].
func (r *schemaRegistry) decode(ctx context.Context, body []byte, _ []deadletter.Header) (console.Decoded, error) {
	if len(body) < 5 || body[0] != 0 {
		return console.Decoded{}, nil
	}
	id := binary.BigEndian.Uint32(body[1:])
	r.mu.Lock()
	d, ok := r.decoders[id]
	r.mu.Unlock()
	if !ok {
		var err error
		if d, err = r.newDecoder(ctx, id); err != nil {
			return console.Decoded{}, fmt.Errorf("schema %d: %w", id, err)
		}
		r.mu.Lock()
		if len(r.decoders) >= maxSchemas {
			clear(r.decoders)
		}
		r.decoders[id] = d
		r.mu.Unlock()
	}
	text, name, err := d.decode(body[5:])
	if err != nil {
		return console.Decoded{}, fmt.Errorf("%s, schema %d: %w", d.format, id, err)
	}
	return console.Decoded{JSON: text, As: strings.TrimSuffix(fmt.Sprintf("%s, schema %d, %s", d.format, id, name), ", ")}, nil
}

// registered is a schema as the registry returns it.
type registered struct {
	Schema     string `json:"schema"`
	Type       string `json:"schemaType"` // empty for Avro
	References []struct {
		Name    string `json:"name"`
		Subject string `json:"subject"`
		Version int    `json:"version"`
	} `json:"references"`
}

func (r *schemaRegistry) newDecoder(ctx context.Context, id uint32) (d bodyDecoder, err error) {
	at := []string{"schemas", "ids", strconv.FormatUint(uint64(id), 10)}
	s, err := r.get(ctx, "", at...)
	if err != nil {
		return d, err
	}
	left := maxReferences
	switch s.Type {
	case "", "AVRO":
		cache := new(avro.SchemaCache)
		schema, err := r.parseAvro(ctx, cache, &s, &left)
		if err == nil {
			err = checkAvro(schema)
		}
		return bodyDecoder{"Avro", func(data []byte) ([]byte, string, error) { return decodeAvro(schema, data) }}, err
	case "PROTOBUF":
		files := new(protoregistry.Files)
		file, err := r.parseProtobuf(ctx, files, "main.proto", &left, at...)
		files.RangeFiles(func(f protoreflect.FileDescriptor) bool {
			err = cmp.Or(err, checkNames(f.Messages(), f.Enums()))
			return err == nil
		})
		return bodyDecoder{"Protobuf", func(data []byte) ([]byte, string, error) { return decodeProtobuf(file, data) }}, err
	case "JSON":
		return bodyDecoder{"JSON", func(data []byte) ([]byte, string, error) { return data, "", nil }}, nil
	default:
		return d, fmt.Errorf("schemas of type %q cannot be read here", s.Type)
	}
}

// get returns a schema. An empty format is the default.
func (r *schemaRegistry) get(ctx context.Context, format string, path ...string) (s registered, err error) {
	for i := range path {
		path[i] = url.PathEscape(path[i])
	}
	at := r.base.JoinPath(path...)
	if format != "" {
		at.RawQuery = "format=" + format
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.String(), nil)
	if err != nil {
		return s, err
	}
	if password, ok := r.user.Password(); ok {
		req.SetBasicAuth(r.user.Username(), password)
	}
	answer, err := r.client.Do(req)
	if err != nil {
		return s, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return s, fmt.Errorf("the registry answers %s", answer.Status)
	}
	text, err := io.ReadAll(io.LimitReader(answer.Body, maxSchema+1))
	if err == nil && len(text) > maxSchema {
		err = fmt.Errorf("the schema is larger than %d bytes", maxSchema)
	}
	if err == nil {
		err = json.Unmarshal(text, &s)
	}
	return s, err
}

// eachReference calls do with the name and the path of each schema that s refers to. left is the number of references
// that may still be followed.
func eachReference(s *registered, left *int, do func(name string, path ...string) error) error {
	for _, ref := range s.References {
		if *left--; *left < 0 {
			return fmt.Errorf("the schema refers to more than %d others", maxReferences)
		}
		if err := do(ref.Name, "subjects", ref.Subject, "versions", strconv.Itoa(ref.Version)); err != nil {
			return fmt.Errorf("%s: %w", ref.Name, err)
		}
	}
	return nil
}

func (r *schemaRegistry) parseAvro(ctx context.Context, cache *avro.SchemaCache, s *registered, left *int) (*avro.Schema, error) {
	err := eachReference(s, left, func(_ string, path ...string) error {
		other, err := r.get(ctx, "", path...)
		if err == nil {
			_, err = r.parseAvro(ctx, cache, &other, left)
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	return cache.Parse(s.Schema)
}

func decodeAvro(schema *avro.Schema, data []byte) (text []byte, name string, err error) {
	var v any
	if _, err := schema.Decode(data, &v); err != nil {
		return nil, "", err
	}
	root := schema.Root()
	text, err = schema.EncodeJSON(v)
	return text, strings.TrimPrefix(root.Namespace+"."+root.Name, "."), err
}

// parseProtobuf registers a file and the files that it imports. The registry gives them as descriptors.
func (r *schemaRegistry) parseProtobuf(ctx context.Context, files *protoregistry.Files, name string, left *int, path ...string) (protoreflect.FileDescriptor, error) {
	s, err := r.get(ctx, "serialized", path...)
	if err != nil {
		return nil, err
	}
	err = eachReference(&s, left, func(name string, path ...string) error {
		if _, err := files.FindFileByPath(name); err == nil {
			return nil
		}
		_, err := r.parseProtobuf(ctx, files, name, left, path...)
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := base64.StdEncoding.DecodeString(s.Schema)
	if err != nil {
		return nil, err
	}
	var descriptor descriptorpb.FileDescriptorProto
	if err := proto.Unmarshal(raw, &descriptor); err != nil {
		return nil, err
	}
	descriptor.Name = &name
	file, err := protodesc.NewFile(&descriptor, withWellKnown{files})
	if err != nil {
		return nil, err
	}
	return file, files.RegisterFile(file)
}

// withWellKnown also finds the well-known types of Protobuf.
type withWellKnown struct{ *protoregistry.Files }

func (w withWellKnown) FindFileByPath(path string) (protoreflect.FileDescriptor, error) {
	if file, err := w.Files.FindFileByPath(path); err == nil {
		return file, nil
	}
	return protoregistry.GlobalFiles.FindFileByPath(path)
}

func (w withWellKnown) FindDescriptorByName(name protoreflect.FullName) (protoreflect.Descriptor, error) {
	if d, err := w.Files.FindDescriptorByName(name); err == nil {
		return d, nil
	}
	return protoregistry.GlobalFiles.FindDescriptorByName(name)
}

// decodeProtobuf decodes a message. Indexes before the message select its type in the file: their number, then the
// index on each level of nesting. The number 0 means the first type.
func decodeProtobuf(file protoreflect.FileDescriptor, data []byte) (text []byte, name string, err error) {
	in := bytes.NewReader(data)
	n, err := binary.ReadVarint(in)
	types, index := file.Messages(), int64(0)
	for i := int64(0); err == nil && i < max(n, 1); i++ {
		if n > 0 {
			index, err = binary.ReadVarint(in)
		}
		if err == nil && (index < 0 || index >= int64(types.Len())) {
			err = fmt.Errorf("the schema has no type %d", index)
		}
		if err == nil && i < n-1 {
			types = types.Get(int(index)).Messages()
		}
	}
	if err != nil {
		return nil, "", err
	}
	m := dynamicpb.NewMessage(types.Get(int(index)))
	if err := proto.Unmarshal(data[len(data)-in.Len():], m); err != nil {
		return nil, "", err
	}
	text, err = protojson.Marshal(m)
	return text, string(m.Descriptor().FullName()), err
}

// checkNames refuses long names in Protobuf: a field or a value of an enumeration of two bytes becomes its name.
func checkNames(messages protoreflect.MessageDescriptors, enums protoreflect.EnumDescriptors) error {
	long := func(n int) error {
		if n > maxNameSize {
			return fmt.Errorf("it is not decoded, because the name of a field or a value has %d bytes, more than %d", n, maxNameSize)
		}
		return nil
	}
	for i := range enums.Len() {
		for values, n := enums.Get(i).Values(), 0; n < values.Len(); n++ {
			if err := long(len(values.Get(n).Name())); err != nil {
				return err
			}
		}
	}
	for i := range messages.Len() {
		m := messages.Get(i)
		for n := range m.Fields().Len() {
			f := m.Fields().Get(n)
			if err := long(max(len(f.Name()), len(f.JSONName()))); err != nil {
				return err
			}
		}
		if err := checkNames(m.Messages(), m.Enums()); err != nil {
			return err
		}
	}
	return nil
}
