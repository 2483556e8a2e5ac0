package rabbitmqworld

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/redeliver/redeliver/integration/brokers"
)

// admin is the administrator of a virtual host, through the management API.
type admin struct{ management, name string }

// newAdmin makes a virtual host and a user with all rights in it, both of that name. It returns the URLs of the administrator and
// of the user.
func newAdmin(r *brokers.Rabbit, name string) (a *admin, own, user string, err error) {
	u, err := url.Parse(r.URL())
	if err != nil {
		return nil, "", "", err
	}
	a = &admin{strings.TrimSuffix(r.Management(), "/"), name}
	for _, request := range []struct {
		path string
		body any
	}{
		{"vhosts/" + name, nil},
		{"permissions/" + name + "/" + url.PathEscape(u.User.Username()), rights("")},
		{"users/" + name, map[string]any{"password": name, "tags": ""}},
		{"permissions/" + name + "/" + name, rights("")},
	} {
		if err := a.do(http.MethodPut, request.path, request.body, nil); err != nil {
			return nil, "", "", err
		}
	}
	u.Path = "/" + name
	own = u.String()
	u.User = url.UserPassword(name, name)
	return a, own, u.String(), nil
}

// rights returns all rights without one.
func rights(without string) map[string]any {
	all := map[string]any{"configure": ".*", "write": ".*", "read": ".*"}
	if without != "" {
		all[without] = "^$"
	}
	return all
}

func (a *admin) close() error {
	if err := a.do(http.MethodDelete, "vhosts/"+a.name, nil, nil); err != nil {
		return err
	}
	return a.do(http.MethodDelete, "users/"+a.name, nil, nil)
}

// deny takes a right away, or gives all back.
func (a *admin) deny(right string) error {
	return a.do(http.MethodPut, "permissions/"+a.name+"/"+a.name, rights(right), nil)
}

// closeConnections closes the connections of the user.
func (a *admin) closeConnections() error {
	var all []struct{ Name, User string }
	if err := a.do(http.MethodGet, "vhosts/"+a.name+"/connections", nil, &all); err != nil {
		return err
	}
	for _, c := range all {
		if c.User == a.name {
			_ = a.do(http.MethodDelete, "connections/"+url.PathEscape(c.Name), nil, nil) // it may have ended
		}
	}
	return nil
}

// queues returns the names of all queues.
func (a *admin) queues() (names []string, _ error) {
	var all []struct{ Name string }
	if err := a.do(http.MethodGet, "queues/"+a.name+"?columns=name", nil, &all); err != nil {
		return nil, err
	}
	for _, q := range all {
		names = append(names, q.Name)
	}
	return names, nil
}

func (a *admin) deleteQueue(name string) error {
	return a.do(http.MethodDelete, "queues/"+a.name+"/"+url.PathEscape(name), nil, nil)
}

func (a *admin) setPolicy(name, pattern string, definition map[string]any) error {
	return a.do(http.MethodPut, "policies/"+a.name+"/"+name, map[string]any{"pattern": pattern, "definition": definition, "apply-to": "queues"}, nil)
}

func (a *admin) deletePolicy(name string) error {
	return a.do(http.MethodDelete, "policies/"+a.name+"/"+name, nil, nil)
}

func (a *admin) do(method, path string, in, out any) error {
	var body io.Reader
	if in != nil {
		b, err := json.Marshal(in)
		if err != nil {
			return err
		}
		body = bytes.NewReader(b)
	}
	req, err := http.NewRequestWithContext(context.Background(), method, a.management+"/api/"+path, body)
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	if err != nil {
		return err
	}
	if res.StatusCode >= http.StatusMultipleChoices {
		return fmt.Errorf("%s %s: %s %s", method, path, res.Status, answer)
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(answer, out)
}
