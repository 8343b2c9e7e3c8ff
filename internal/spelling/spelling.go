// Package spelling says how far words are from each other, for whoever suggests
// what somebody meant.
package spelling

// Distance counts the bytes to insert, delete or replace to get from a to b. It
// takes as long as both are long: bound what others have written.
func Distance(a, b string) int {
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := range len(a) {
		before := row[0]
		row[0] = i + 1
		for j := range len(b) {
			cost := before
			if a[i] != b[j] {
				cost = 1 + min(before, row[j], row[j+1])
			}
			before, row[j+1] = row[j+1], cost
		}
	}
	return row[len(b)]
}
