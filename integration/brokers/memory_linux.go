package brokers

import "golang.org/x/sys/unix"

// memoryDir is a file system in memory.
const memoryDir = "/dev/shm"

// roomInMemory is how much must be free there for a broker whose tests leave some hundred megabytes behind at most. A
// container of docker has 64 MB.
const roomInMemory = 4 << 30

// inMemory is the directory in memory, where there is one with room, and otherwise empty.
func inMemory() string {
	var s unix.Statfs_t
	if err := unix.Statfs(memoryDir, &s); err != nil || s.Type != unix.TMPFS_MAGIC || s.Bavail*uint64(s.Bsize) < roomInMemory {
		return ""
	}
	return memoryDir
}
