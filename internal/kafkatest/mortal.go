package kafkatest

import "github.com/IBM/sarama"

// Mortal is a configuration of a client whose connections kill cuts for good: as the
// broker sees it, its process is dead.
func Mortal() (cfg *sarama.Config, kill func()) {
	line := &line{guard: &guard{}}
	return through(line), line.cut
}
