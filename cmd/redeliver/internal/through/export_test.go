package through

// ReadInto is for the fuzz test.
var ReadInto = readInto
