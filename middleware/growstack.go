package middleware

// stackRoom is the size in bytes of growStack's frame. With it, the stack of a new goroutine grows to 8 KiB.
const stackRoom = 5 << 10

// growStack grows the goroutine's stack to 8 KiB at once. A Router handles each message in a new goroutine. Its stack of
// 2 KiB would otherwise grow twice during the attempt, and each time all frames would be copied: that is an eighth of a
// Router's CPU, and a third with a tracer.
//
// The compiler does not know the index, so it keeps the frame.
//
//go:noinline
func growStack(at uint8) byte {
	var room [stackRoom]byte
	return room[at]
}
