package through

// ReadOutput is for the fuzz test.
var ReadOutput = readInto
