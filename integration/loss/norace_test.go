//go:build !race

package loss

const underRace = false
