package eventlog

import "testing"

// contract holds wherever the log is.
var contract = []struct {
	name string
	test func(t *testing.T, at *place)
}{
	{"AppendThenFollow", appendThenFollow},
	{"FollowGoesOnLive", followGoesOnLive},
	{"StaleWriterIsFenced", staleWriterIsFenced},
	{"LaggingFollowerLosesNothingAndBlocksNobody", laggingFollowerLosesNothingAndBlocksNobody},
	{"DeltasAreLiveOnly", deltasAreLiveOnly},
	{"Blobs", blobs},
}

func TestContractEmbedded(t *testing.T) { holds(t, embedded(t)) }

func TestContractOtherProcess(t *testing.T) { holds(t, otherProcess(t)) }

func TestContractCluster(t *testing.T) { holds(t, cluster(t)) }

func holds(t *testing.T, at *place) {
	for _, c := range contract {
		t.Run(c.name, func(t *testing.T) {
			l, closeAll := at.openBroker(t, Options{})
			if err := l.running(soon(t)); err != nil {
				t.Fatal(err)
			}
			if err := l.stream.Purge(soon(t)); err != nil { // what the last one left
				t.Fatal(err)
			}
			closeAll()
			c.test(t, at)
		})
	}
}
