#!/bin/sh
# The rights that User:CN=bill, O=the shop's needs to work on the DLQ of payments and group bil'ling; $(boom) with redeliver dlq and redeliver doctor.
# Run it with sh FILE, or to log in: sh FILE --command-config admin.properties
set -eu
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Describe --operation DescribeConfigs --topic payments
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.retry.10s
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.retry
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.dlq
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.dlq.state
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.control
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Describe --group 'bil'\''ling; $(boom)'
