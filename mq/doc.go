// Package mq has what is the same on every broker.
//
// A [Batch] is what batch handlers get, from the ConsumeBatch functions of adapters and from middleware.Batch.
package mq
