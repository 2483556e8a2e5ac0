#!/bin/sh
# The rights that User:CN=bill, O=the shop's needs to consume payments as group bil'ling; $(boom), with retries and a DLQ.
# Run it with sh FILE, or to log in: sh FILE --command-config admin.properties
# This group delivers messages that are published to payments with a delay. If there are any, it also needs Write on payments.
set -eu
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation DescribeConfigs --topic payments
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.retry.10s
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --operation Write --operation Delete --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.retry
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Write --operation DescribeConfigs --topic payments.bil_27ling_3b_20_24_28boom_29.dlq
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --topic payments.bil_27ling_3b_20_24_28boom_29.control
kafka-acls.sh "$@" --bootstrap-server HOSTS --add --allow-principal 'User:CN=bill, O=the shop'\''s' --operation Read --group 'bil'\''ling; $(boom)'
