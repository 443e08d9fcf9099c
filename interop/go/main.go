// A copier with franz-go: a member of a group that copies a topic in transactions, until SIGTERM.
//
// Arguments: bootstrap servers, input topic, output topic, group, transactional id.
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	recordsOfATransaction = 10
	pause                 = 50 * time.Millisecond
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1], os.Args[2], os.Args[3], os.Args[4], os.Args[5]); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

func run(ctx context.Context, servers, source, target, group, transactionalID string) error {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(servers, ",")...),
		kgo.TransactionalID(transactionalID),
		kgo.TransactionTimeout(10*time.Second),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
		kgo.ConsumerGroup(group),
		kgo.ConsumeTopics(source),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.RequireStableFetchOffsets(),
		kgo.SessionTimeout(6*time.Second),
		kgo.HeartbeatInterval(500*time.Millisecond),
	)
	if err != nil {
		return err
	}
	defer session.Close()
	for {
		fetches := session.PollRecords(ctx, recordsOfATransaction)
		if ctx.Err() != nil {
			return nil
		}
		for _, problem := range fetches.Errors() {
			fmt.Println("fetch:", problem.Err)
		}
		if fetches.Empty() {
			continue
		}
		if err := copyRecords(session, fetches, target); err != nil {
			return err
		}
		time.Sleep(pause)
	}
}

// copyRecords writes the records in a transaction. A rebalance aborts it; the records are read again then.
func copyRecords(session *kgo.GroupTransactSession, fetches kgo.Fetches, target string) error {
	ctx := context.Background()
	if err := session.Begin(); err != nil {
		return err
	}
	promise := kgo.AbortingFirstErrPromise(session.Client())
	fetches.EachRecord(func(found *kgo.Record) {
		record := &kgo.Record{Topic: target, Partition: found.Partition, Key: found.Key, Value: found.Value}
		session.Produce(ctx, record, promise.Promise())
	})
	committed, err := session.End(ctx, promise.Err() == nil)
	if err != nil {
		return err
	}
	if !committed {
		fmt.Println("aborted:", promise.Err())
	}
	return nil
}
