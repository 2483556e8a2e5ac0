package console

import (
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var colour = regexp.MustCompile(`--([a-z-]+): #([0-9a-f]{3}|[0-9a-f]{6});`)

// palettes returns the light and dark colours of the style.
func palettes(t *testing.T) (light, dark map[string]float64) {
	t.Helper()
	css, err := files.ReadFile("assets/console.css")
	if err != nil {
		t.Fatal(err)
	}
	first, second, ok := strings.Cut(string(css), "prefers-color-scheme: dark")
	if !ok {
		t.Fatal("the page has no dark mode")
	}
	read := func(text string) map[string]float64 {
		all := map[string]float64{}
		for _, m := range colour.FindAllStringSubmatch(text, -1) {
			all[m[1]] = luminance(t, m[2])
		}
		return all
	}
	return read(first), read(second)
}

// luminance returns the relative luminance of WCAG 2.
func luminance(t *testing.T, hex string) float64 {
	t.Helper()
	if len(hex) == 3 {
		hex = string([]byte{hex[0], hex[0], hex[1], hex[1], hex[2], hex[2]})
	}
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(hex[2*i:2*i+2], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.04045 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// Text is readable on all its backgrounds, light and dark, as WCAG 2.2 AA requires: contrast 4.5 to 1, and 3 to 1 for
// anything but text.
func TestTextCanBeRead(t *testing.T) {
	light, dark := palettes(t)
	for name, p := range map[string]map[string]float64{"light": light, "dark": dark} {
		check := func(fore, ground string, least float64) {
			x, y := p[fore], p[ground]
			if _, ok := p[fore]; !ok {
				t.Fatalf("%s has no %s", name, fore)
			}
			if _, ok := p[ground]; !ok {
				t.Fatalf("%s has no %s", name, ground)
			}
			if c := (max(x, y) + 0.05) / (min(x, y) + 0.05); c < least {
				t.Errorf("%s: %s on %s has %.2f to 1, less than %.1f", name, fore, ground, c, least)
			}
		}
		for _, ground := range []string{"ground", "card", "accent-ground", "good-ground", "warn-ground", "bad-ground"} {
			check("text", ground, 4.5)
			check("accent", ground, 4.5)
			check("faint", ground, 4.5)
		}
		for _, kind := range []string{"good", "warn", "bad"} {
			check(kind, kind+"-ground", 4.5)
			check(kind, "card", 4.5)
		}
		check("on-accent", "accent", 4.5)
		check("bar", "card", 3)
		check("field", "card", 3) // the borders of fields
		check("field", "ground", 3)
	}
}
