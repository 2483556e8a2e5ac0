// Package release checks a release: the command can be installed once the library has a version, the licences are those
// of the linked modules, and versions in several files are the same.
package release
