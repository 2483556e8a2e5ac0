// Package release proves what a release is made of: that the command can be installed once the library has a version,
// that the licences are those of what is built, and that versions that are in several files are the same.
package release
