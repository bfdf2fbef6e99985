# Drops frames received on the NIC $1 before the kernel handles them. The packet
# sockets of the userspace datapath (AF_PACKET) get the frames before this chain.
nft -f - <<NFT
table netdev hide-$1
delete table netdev hide-$1
table netdev hide-$1 {
	chain in {
		type filter hook ingress device "$1" priority 0; policy drop;
	}
}
NFT
