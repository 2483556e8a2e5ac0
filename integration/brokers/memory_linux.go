package brokers

import "golang.org/x/sys/unix"

// memoryDir is a file system in memory.
const memoryDir = "/dev/shm"

// roomInMemory is the required free space there, in bytes. The tests of a broker leave at most some hundred megabytes
// behind. A container of docker has 64 MB.
const roomInMemory = 4 << 30

// inMemory returns the directory in memory if it has enough room, or "".
func inMemory() string {
	var s unix.Statfs_t
	if err := unix.Statfs(memoryDir, &s); err != nil || s.Type != unix.TMPFS_MAGIC || s.Bavail*uint64(s.Bsize) < roomInMemory {
		return ""
	}
	return memoryDir
}
