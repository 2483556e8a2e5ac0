//go:build prove

package observe_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
)

// panel is a part of the dashboard.
type panel struct {
	ID          int    `json:"id"`
	Type        string `json:"type"`
	Title       string `json:"title"`
	Description string `json:"description"`
	Datasource  source `json:"datasource"`
	Grid        struct {
		H int `json:"h"`
		W int `json:"w"`
		X int `json:"x"`
		Y int `json:"y"`
	} `json:"gridPos"`
	Field struct {
		Defaults struct {
			Unit string `json:"unit"`
		} `json:"defaults"`
	} `json:"fieldConfig"`
	Targets []struct {
		RefID      string `json:"refId"`
		Expr       string `json:"expr"`
		Legend     string `json:"legendFormat"`
		Datasource source `json:"datasource"`
	} `json:"targets"`
	Panels []panel `json:"panels"`
}

type source struct {
	Type string `json:"type"`
	UID  string `json:"uid"`
}

type dashboard struct {
	Title      string  `json:"title"`
	UID        string  `json:"uid"`
	Schema     int     `json:"schemaVersion"`
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name       string          `json:"name"`
			Type       string          `json:"type"`
			Definition string          `json:"definition"`
			Query      json.RawMessage `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

func board(t *testing.T) *dashboard {
	t.Helper()
	var d dashboard
	if err := json.Unmarshal(read(t, "../../observe/grafana/redeliver.json"), &d); err != nil {
		t.Fatal(err)
	}
	return &d
}

// promQL is an expression as Grafana sends it.
func promQL(expr string) string { return strings.ReplaceAll(expr, "$__rate_interval", "5m") }

// ownPanels are the panels that Grafana has without a plugin.
var ownPanels = []string{"row", "timeseries", "stat", "heatmap", "state-timeline", "table"}

// The dashboard can be imported anywhere. The import asks for its data source, it needs no plugin, and each panel has a
// description.
func TestDashboard(t *testing.T) {
	t.Parallel()
	d := board(t)
	if d.Title == "" || d.UID == "" || d.Schema == 0 {
		t.Errorf("title %q, uid %q, schema %d", d.Title, d.UID, d.Schema)
	}
	variables := make(map[string]string)
	for _, v := range d.Templating.List {
		variables[v.Name] = v.Type
	}
	if variables["datasource"] != "datasource" {
		t.Errorf("the data source is not a variable: %v", variables)
	}
	ids, titles, taken := make(map[int]bool), make(map[string]bool), make(map[string]string)
	for _, p := range d.Panels {
		if ids[p.ID] || p.ID == 0 {
			t.Errorf("%q has the id %d, which is zero or another's", p.Title, p.ID)
		}
		ids[p.ID] = true
		if titles[p.Title] || p.Title == "" {
			t.Errorf("the title %q is empty, or there twice", p.Title)
		}
		titles[p.Title] = true
		if !slices.Contains(ownPanels, p.Type) {
			t.Errorf("%s is a %s, which Grafana may not have", p.Title, p.Type)
		}
		for x := p.Grid.X; x < p.Grid.X+p.Grid.W; x++ {
			for y := p.Grid.Y; y < p.Grid.Y+p.Grid.H; y++ {
				at := fmt.Sprint(x, "/", y)
				if other := taken[at]; other != "" || x > 23 {
					t.Fatalf("%s covers %s, or is outside the page, at %s", p.Title, other, at)
				}
				taken[at] = p.Title
			}
		}
		if p.Type == "row" {
			if len(p.Panels) > 0 {
				t.Errorf("%s holds panels that this test does not check", p.Title)
			}
			continue
		}
		if p.Description == "" || p.Field.Defaults.Unit == "" || len(p.Targets) == 0 {
			t.Errorf("%s has the description %q, the unit %q and %d targets", p.Title, p.Description, p.Field.Defaults.Unit, len(p.Targets))
		}
		refs := make(map[string]bool)
		for _, target := range p.Targets {
			if refs[target.RefID] {
				t.Errorf("%s has two targets %s", p.Title, target.RefID)
			}
			refs[target.RefID] = true
			if p.Datasource.UID != "${datasource}" || target.Datasource.UID != "${datasource}" {
				t.Errorf("%s asks a data source of its own: %+v", p.Title, target.Datasource)
			}
			shows(t, p.Title, promQL(target.Expr), target.Legend)
		}
	}
}
