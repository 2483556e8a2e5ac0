package amqp

// spot is a message in its queue.
type spot struct{ queue, id string }

// placesMost is of how many messages it is known that they have failed and keep
// their place.
const placesMost = 200_000
